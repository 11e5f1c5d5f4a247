"""What a publisher decides: who wants a message, what is batched, what waits, what is dropped."""
