"""Drop-in sockets: subclasses of pyzmq's sockets that take patterns.

- `filter.py` has the patterns of one socket, and decides which subjects match. It does no I/O.
- `reading.py` has the state of one libzmq socket whose messages pass a filter.
- `sub.py` and `pub.py` have `oz.SubSocket` and `oz.PubSocket`.
- `poller.py` has a poller that ignores messages that no pattern matches.
- `asyncio.py` has `oz.asyncio.SubSocket`, `PubSocket` and `Poller`, which are based on `zmq.asyncio`.
"""
