"""Live view of a bus in the browser. It needs the extra `explorer` of ozmq."""
