"""A member of the queue group `g` that says what it gets: python member.py ENDPOINT POLICY."""

import sys

import oz

endpoint, policy = sys.argv[1:]
with oz.Subscriber(endpoint, filtering="publisher") as sub:
    sub.subscribe("a.>", group="g", policy=policy)
    for message in sub:
        print(message.payload.decode(), flush=True)
