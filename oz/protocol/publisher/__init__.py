"""The decisions of a publisher: who wants a message, what is batched, what waits, what is dropped."""
