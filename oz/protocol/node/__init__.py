"""What a node and a name server decide: who is on the bus, who answers, which handler is next."""
