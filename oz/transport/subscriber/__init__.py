"""How a subscriber's messages come from ZeroMQ."""
