"""Helpers of tests: waiting, programs, ports, buses, vectors, sizes."""
