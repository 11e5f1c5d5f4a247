"""Many patterns at once: which of them match a subject."""
