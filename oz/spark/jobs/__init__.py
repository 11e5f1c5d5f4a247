"""Jobs over recorded traffic: each a function of `oz.spark`, and a command `oz spark …`."""
