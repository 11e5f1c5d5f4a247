"""Index of many patterns, which finds all patterns that match a subject."""
