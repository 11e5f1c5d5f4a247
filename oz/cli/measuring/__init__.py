"""What `oz bench` does: a publisher, subscribers in processes of their own, and what they counted.

Whoever measures (running.py) tells the publisher over a ZeroMQ socket what to do (server.py), on this machine
or another; the subscribers (subscribing.py) hear from the publisher where a phase begins and ends. Every
message is counted on both sides, so that what is lost is known and not estimated.
"""
