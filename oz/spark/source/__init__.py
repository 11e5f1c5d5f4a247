"""The source: a journal, or what a recorder writes for the query, as rows in batch and in streams."""
