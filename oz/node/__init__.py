"""Nodes on links: pure machines. `oz.Node` does not use them yet."""
