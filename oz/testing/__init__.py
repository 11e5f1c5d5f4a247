"""Testing: a bus in one process, on a virtual clock, with faults.

It stands on a model of what oz uses of ZeroMQ: `network` has the clock, the listeners and the faults,
`context` the processes that sockets are made by, `proxy` the proxies between them. No real socket, thread or
time is in it.
"""
