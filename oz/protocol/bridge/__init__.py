"""What forwarders and gateways decide: which buses they join, and what passes between them."""
