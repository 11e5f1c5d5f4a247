"""The publisher's side of links: sessions, interest, groups, batches, last values."""
