"""Nodes: a publisher and a subscriber with one id, the roster of peers, requests and handlers."""
