"""Simulation of a bus in one process on a virtual clock. A seed chooses the faults; each run ends with checks."""
