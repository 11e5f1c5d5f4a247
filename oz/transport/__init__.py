"""Functions of ZeroMQ, of keys and of waits that publishers, subscribers, nodes and services share."""
