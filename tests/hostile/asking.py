"""Asks a name server who is there, again and again, and reads nothing: `asking.py NAMESERVER TIMES`."""

import sys

import zmq

from oz.wire.discovery import Ask, pack


def main(nameserver, times):
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.set(zmq.RCVHWM, 1)
    dealer.set(zmq.RCVBUF, 4_096)
    dealer.set(zmq.SNDHWM, 0)
    dealer.connect(nameserver)
    for _ in range(int(times)):
        dealer.send(pack(Ask()))
    print("asked", flush=True)
    sys.stdin.read()


main(*sys.argv[1:])
