"""What stands for a node's sockets where its links are decided: the ports of `Connections`, by hand."""


class Subscriber:
    """What was heard of whom."""

    def __init__(self):
        self.heard, self.answered = {}, set()

    def heard_at(self, origin):
        return self.heard.get(origin, 0)

    def last_heard(self):
        return dict(self.heard)

    def has_answer(self, origin):
        return origin in self.answered

    def hear(self, origin):
        self.heard[origin] = self.heard.get(origin, 0) + 1


class Sockets:
    """A directory: its sockets, and those of them on which nobody listens."""

    def __init__(self, *there):
        self.there, self.dead, self.tried = set(there), set(), []

    def others(self):
        return set(self.there)

    def clear(self, endpoint):
        self.tried.append(endpoint)
        if endpoint not in self.dead:
            return False
        self.there.discard(endpoint)
        return True
