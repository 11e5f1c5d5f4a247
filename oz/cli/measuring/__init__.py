"""The parts of `oz bench`: a publisher, subscribers in processes of their own, and their counts.

Whoever measures (running.py) tells the publisher over a ZeroMQ socket what to do (server.py), on this machine
or another; the subscribers (subscribing.py) hear from the publisher where a phase begins and ends. Every
message is counted on both sides, so that what is lost is known and not estimated.
"""
