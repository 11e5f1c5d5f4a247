"""Subjects and patterns. A pattern is compiled to prefixes and a regex. This package uses no sockets or threads."""
