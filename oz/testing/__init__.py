"""Testing: a bus in one process, on a virtual clock, with faults.

It stands on a model of what oz uses of ZeroMQ: `network` has the clock, the listeners and the faults,
`sockets` the sockets, `proxy` the proxies between them. No socket, thread or real time is in it.
"""
