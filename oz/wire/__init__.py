"""Bytes to values and back. No sockets, threads or clocks here."""
