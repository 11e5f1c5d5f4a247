"""The decisions of forwarders and gateways: which buses they join, and what passes between them."""
