"""Prefixes of the strings that a regex matches."""
