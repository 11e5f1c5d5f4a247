"""Subscribers: state machines of links without I/O, and the engine with the sockets.

- `link.py`, `subscriptions.py`, `queue.py`, `fallback.py` and `message.py` decide, without sockets and clocks.
- `links.py` and `plain.py` have the sockets, and `places.py` has the state of each endpoint.
- `connections.py` opens endpoints, moves frames and reads the clock. `engine.py` adds subscriptions, handlers and
  the end of a subscriber.
- `waits.py` has the waits as steps. `threads.py` runs the steps in threads, and `tasks.py` in an asyncio loop.
- `base.py`, `sync.py` and `aio.py` have `Subscriber` and `Subscription`. `checks.py` checks their arguments.
"""
