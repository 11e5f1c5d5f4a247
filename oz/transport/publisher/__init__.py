"""The way of a publisher's messages to ZeroMQ."""
