"""Drop-in sockets: subclasses of pyzmq's sockets that take patterns.

- `filter.py` matches subjects with the patterns of one socket, without I/O.
- `reading.py` keeps the state of one libzmq SUB: its filter, and messages that were read but not delivered.
- `sub.py` and `pub.py` have `oz.SubSocket` and `oz.PubSocket`.
- `poller.py` has a poller that ignores messages that no pattern matches.
- `asyncio.py` has `oz.asyncio.SubSocket`, `PubSocket` and `Poller`, which are based on `zmq.asyncio`.
"""
