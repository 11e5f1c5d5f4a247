"""How a publisher's messages reach ZeroMQ."""
