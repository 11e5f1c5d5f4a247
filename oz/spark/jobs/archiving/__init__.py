"""How a journal becomes a Parquet lake: what is where in it, and how it gets there whatever is killed."""
