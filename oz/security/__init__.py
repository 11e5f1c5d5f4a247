"""Security: permissions, decisions about keys, and identities."""
