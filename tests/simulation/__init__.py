"""A bus in one process on a virtual clock, with faults by a seed, and what must be so after each run."""
