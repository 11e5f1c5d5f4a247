"""What a subscriber decides: what it declares, who gets what arrives, what is missing."""
