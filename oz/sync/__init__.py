"""The sockets that wait by blocking."""
