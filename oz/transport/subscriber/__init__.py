"""The way of a subscriber's messages from ZeroMQ."""
