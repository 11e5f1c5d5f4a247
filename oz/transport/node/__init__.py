"""The sockets of a node: links, discovery, handlers."""
