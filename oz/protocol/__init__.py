"""State machines without I/O: what to subscribe to, whom to deliver to, who is interested."""
