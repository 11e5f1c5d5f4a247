"""Faults of connections and processes, with an exact account of every message."""
