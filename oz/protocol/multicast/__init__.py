"""What the two ends of a multicast group decide."""
