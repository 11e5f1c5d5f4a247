"""The decisions of a subscriber: what it declares, who gets a message, what is missing."""
