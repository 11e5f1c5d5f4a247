"""The decisions of the two ends of a multicast group."""
