"""The parts of `explain`: what patterns match and let through, and other orders of tokens."""
