"""Everything that touches ZeroMQ and that sync and asyncio sockets share."""
