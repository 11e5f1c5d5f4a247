"""Subjects and patterns: text in, prefixes and a regex out. No sockets, threads or clocks here."""
