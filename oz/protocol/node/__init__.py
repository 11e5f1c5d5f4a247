"""The decisions of nodes and name servers: who is on the bus, who answers, which handler is next."""
