"""Helpers of tests of commands that join a bus."""

import contextlib

import oz
from support.waiting import DEADLINE, until

ANSWER = ("--wait", "60", "--timeout", "60")  # of `oz request`: as long as a slow machine may take


def on_bus(directory, *arguments):
    return (*arguments, "--directory", directory)


def answered(node, subject, payload=b"", **options):
    """Send a request as soon as there is a responder; return the payload of the reply."""

    def ask():
        with contextlib.suppress(oz.NoResponders):
            return [node.request(subject, payload, timeout=DEADLINE, **options).payload]

    return until(ask, DEADLINE)[0]
