"""Security: permissions, decisions about keys, and ids that belong to keys."""
