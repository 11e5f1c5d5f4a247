"""Subscribers: state machines of links without I/O, and the engine with the sockets.

- `link.py`, `subscriptions.py`, `queue.py`, `fallback.py`, `message.py`: decisions, without sockets and clocks.
- `links.py`, `plain.py`: sockets. `places.py`: state of each endpoint.
- `connections.py`: endpoints, frames in and out, the clock. `engine.py`: subscriptions, handlers, the end.
- `waits.py`: the waits as steps. `threads.py`, `tasks.py`: run the steps in threads and in an asyncio loop.
- `base.py`, `sync.py`, `aio.py`: `Subscriber` and `Subscription`. `checks.py` checks their arguments.
"""
