"""The archive: a journal becomes a Parquet lake, complete whatever is killed."""
