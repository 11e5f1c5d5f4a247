"""Multicast over PGM: one publisher for each endpoint, and subscribers that count every loss.

- `plan.py`, `sender.py`, `receiver.py`, `watchdog.py`: decisions, without sockets and clocks.
- `endpoints.py`, `group.py`: checks of endpoints, options of sockets, claims to UDP ports.
- `sending.py`, `listening.py`, `arrivals.py`: sockets.

`oz.publisher.multicast` and `oz.subscriber.multicast` use them, and so do the processes of the gateway. The
format of the frames is in `oz.wire.datagrams`.
"""
