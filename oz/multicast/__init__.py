"""Multicast over PGM. Each endpoint has one publisher. Its subscribers count every lost message.

- `plan.py`, `sender.py`, `receiver.py`, `watchdog.py`: logic without sockets or clocks.
- `endpoints.py`, `group.py`: checks of endpoints, socket options, and claims to UDP ports.
- `sending.py`, `listening.py`, `arrivals.py`: sockets.

`oz.publisher.multicast`, `oz.subscriber.multicast` and the gateway use this package. `oz.wire.datagrams` defines the
format of the frames.
"""
