"""The protection of a program from its peers: limits of what they may use, and of what they make it say."""
