"""Live view of a bus in the browser; it needs the extra `explorer`."""
