"""Nodes that meet, and what they are told of themselves."""

from support.waiting import DEADLINE

FEED = """
publish = { allow = ["md.>", "orders.>"] }
subscribe = { allow = ["md.>", "orders.>", "svc.>", "notes.>"] }
request = { allow = ["svc.>"] }
reply = { allow_responses = { count = 1, seconds = 30.0 } }
group = { allow = ["md.> *"] }
"""
DESK = """
publish = { allow = ["notes.>"] }
subscribe = { allow = ["md.>", "svc.>"], deny = ["md.secret.>"] }
request = { allow = ["svc.>"] }
group = { allow = ["md.> work-*"] }
"""
"""The rights of two nodes in most tests."""


def meet(node, *others):
    """Wait until nodes know each other, both ways; give the first."""
    node.wait_for_peers([one.name for one in others], DEADLINE)
    for one in others:
        one.wait_for_peers(node.name, DEADLINE)
    return node


def advisories(node, kind="permission_denied"):
    """Collect what a node is told of itself; give what looks at it."""
    found = []
    node.subscribe("_OZ.ADVISORY.>", handler=lambda message: found.append(message.payload))
    return lambda: [one for one in found if one.kind == kind]
