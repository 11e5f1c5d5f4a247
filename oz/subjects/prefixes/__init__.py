"""The prefixes of a language: how all its strings begin."""
