"""Nodes on links. `oz.Node` does not use them yet."""
