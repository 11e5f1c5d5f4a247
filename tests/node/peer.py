"""A node in a process of its own: `peer.py NAME OPTIONS`; says a line for each line that it is told.

ready             when it is there and speaks with every peer that it knows
peers             the names of its peers
listen PATTERN    subscribes, and keeps the payloads
got               what it kept
serve PATTERN [GROUP]   answers requests with its name and the payload
publish SUBJECT COUNT   publishes numbers
ask SUBJECT       makes a request; the answer
close             leaves
"""

import ast
import sys

import oz


def main(name, options):
    node = oz.Node(name, **ast.literal_eval(options))
    got = []
    for line in sys.stdin:
        word, *rest = line.split()
        print(ACTIONS[word](node, got, *rest), flush=True)


def ready(node, got):
    node.wait_ready(60)
    return "ready"


def peers(node, got):
    return sorted(peer.name for peer in node.peers)


def listen(node, got, pattern):
    node.subscribe(pattern, handler=lambda message: got.append(message.payload))
    return ready(node, got)


def serve(node, got, pattern, group=None):
    node.subscribe(pattern, handler=lambda message: message.reply([node.name, message.payload]), group=group)
    return ready(node, got)


def publish(node, got, subject, count):
    for number in range(int(count)):
        node.publish(subject, number)
    node.flush()
    return "published"


def ask(node, got, subject):
    try:
        return node.request(subject, timeout=60.0).payload
    except oz.OzError as error:
        return type(error).__name__


def close(node, got):
    node.close()
    return "closed"


ACTIONS = {
    "ready": ready,
    "peers": peers,
    "listen": listen,
    "got": lambda node, got: got,
    "serve": serve,
    "publish": publish,
    "ask": ask,
    "close": close,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
