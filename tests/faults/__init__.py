"""Changes of publishers and connections, with an exact account of every message."""
