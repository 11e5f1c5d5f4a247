"""What `oz bench` does: a publisher, subscribers in processes of their own, and what they counted.

Whoever measures (running.py) tells the publisher over a ZeroMQ socket what to do (server.py), on this machine
or another, and its subscriber processes over their stdin (subscribing.py). Every message is counted on both
sides, so that what is lost is known and not estimated.
"""
