"""Index of many patterns, for the match of one subject with all of them."""
