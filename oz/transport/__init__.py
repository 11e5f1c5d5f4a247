"""Code that publishers, subscribers, nodes and services share: libzmq sockets, CURVE keys and waits of threads."""
