"""Drop-in sockets: subclasses of pyzmq's sockets that take patterns.

- `filter.py`: the patterns of one socket, and which subjects they match. Pure.
- `reading.py`: the state of one libzmq socket that is read through a filter. Pure.
- `sub.py`, `pub.py`: `oz.SubSocket` and `oz.PubSocket`.
- `poller.py`: the poller that knows refused messages.
- `asyncio.py`: `oz.asyncio.SubSocket`, `PubSocket` and `Poller`, over `zmq.asyncio`.
"""
