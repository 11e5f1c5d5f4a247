"""Multicast sockets: endpoints, what is sent, what arrives."""
