"""Index of many patterns: matches one subject with all patterns."""
