"""Subscribers: state machines of links without I/O, and the engine with the sockets.

- `link.py`, `subscriptions.py`, `queue.py`, `fallback.py` and `message.py` decide, without sockets and clocks.
- `links.py` and `plain.py` have the sockets, and `places.py` has the state of each endpoint.
- `connections.py` opens endpoints, moves frames and reads the clock. `engine.py` handles
  subscriptions, handlers and the close.
- `waits.py` has the methods that wait, as generators of steps. `threads.py` runs the steps in threads, and `tasks.py`
  runs the steps in an asyncio loop.
- `base.py`, `sync.py` and `aio.py` have `Subscriber` and `Subscription`. `checks.py` checks their arguments.
"""
