"""Subscribers: state machines without I/O, and the engine that owns the sockets.

- `link.py`, `subscriptions.py`, `queue.py`, `fallback.py` and `message.py` make decisions, without sockets and clocks.
- `links.py` and `plain.py` own the sockets, and `places.py` holds the state of each endpoint.
- `connections.py` opens endpoints, reads and sends frames, and reads the clock. `engine.py` manages subscriptions and
  handlers, and closes the subscriber.
- `waits.py` contains the methods that wait, as generators of steps. `threads.py` runs these steps in threads, and
  `tasks.py` runs the steps in an asyncio loop.
- `base.py`, `sync.py` and `aio.py` define `Subscriber` and `Subscription`. `checks.py` checks their arguments.
"""
