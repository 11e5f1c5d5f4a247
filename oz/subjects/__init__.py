"""Subjects and patterns: compilation of text to prefixes and a regex. This package uses no socket and no thread."""
