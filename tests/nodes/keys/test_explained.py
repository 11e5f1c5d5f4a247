"""`oz auth explain` answers as running nodes do: random rules, and random questions about them."""

import json
import random
from contextlib import suppress

import pytest
from click.testing import CliRunner

from oz.cli import main
from oz.errors import OzError, PermissionDenied
from support.keyring import Keyring
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

USERS = ("one", "two", "three")
QUESTIONS = size(20, 50)
"""Questions about each user with each seed: 500 and more in the heavy run."""
WORDS = ("a", "b", "md")
ALL = "\n".join(f'{action} = {{ allow = [">"] }}' for action in ("publish", "subscribe", "request", "reply"))


def spell(draw):
    """Return a pattern and a subject that it matches."""
    subject = draw.choices(WORDS, k=draw.randint(1, 3))
    parts = [draw.choice([word, word, "*"]) for word in subject]
    if draw.random() < 0.3:
        parts = [*parts[: draw.randint(0, len(parts) - 1)], ">"]
    return ".".join(parts), ".".join(subject)


def rules(draw, actions):
    """Return random rules about actions."""
    lines = []
    for action in actions:
        texts = {one: [spell(draw)[0] for _ in range(draw.randint(1, 3))] for one in ("allow", "deny")}
        if draw.random() < 0.5:
            del texts["deny"]
        if action == "group":
            texts = {one: [f"{text} work-*" for text in said] for one, said in texts.items()}
        lines.append(f"{action} = {{ " + ", ".join(f"{one} = {said}" for one, said in texts.items()) + " }")
    return "\n".join(lines)


class Bus:
    """A node that serves all subjects, and nodes with random rights, which ask it."""

    def __init__(self, make, ring, directory):
        self._make, self._ring, self._directory = make, ring, directory
        self.handled = []
        self.hub = self.node("hub", bind="tcp://127.0.0.1:*")
        self.users = {one: self.node(one, connect=self.hub.endpoint) for one in USERS}
        for name, one in self.users.items():
            one.wait_ready("hub", timeout=DEADLINE)
            self.hub.wait_ready(name, timeout=DEADLINE)

    def node(self, name, **options):
        # The hub decides about the first user, the other users read the file too.
        security = self._ring.security(name, permissions=name != USERS[0])
        return self._make(name, security=security, directory=f"{self._directory}/{name}", **options)

    def serve(self):
        self.hub.subscribe(">", lambda message: self.handled.append(message.subject) or 1)
        self.hub.wait_ready(timeout=DEADLINE)

    def subscribe(self, user, pattern, subject, group=None):
        found = self.users[user].subscribe(pattern, group=group)
        with suppress(PermissionDenied):
            self.users[user].wait_ready("hub", timeout=DEADLINE)
        is_granted = self.hub.has_subscribers(subject)
        found.unsubscribe()
        until(lambda: not self.hub.has_subscribers(subject))
        return is_granted

    def group(self, user, pattern, subject):
        return self.subscribe(user, pattern, subject, "work-1")

    def publish(self, user, pattern, subject):
        handled, denied = len(self.handled), self.hub.stats.denied
        try:
            self.users[user].publish(subject, 1)
        except PermissionDenied:
            return False
        until(lambda: len(self.handled) > handled or self.hub.stats.denied > denied)
        return len(self.handled) > handled

    def request(self, user, pattern, subject):
        handled = len(self.handled)
        self._ask(self.users[user], subject)
        return len(self.handled) > handled

    def reply(self, user, pattern, subject):
        node, hub = self.users[user], self.hub
        found = node.subscribe(subject, lambda message: 1)
        hub.wait_ready(subscriber=subject, timeout=DEADLINE)
        denied, replies = hub.stats.denied, []
        Thread(lambda: replies.append(self._ask(hub, subject)))
        until(lambda: replies or hub.stats.denied > denied)
        found.unsubscribe()
        until(lambda: not hub.has_subscribers(subject))
        return any(reply is not None for reply in replies)

    @staticmethod
    def _ask(node, subject):
        # The request ends with PermissionDenied if the user may not reply.
        with suppress(OzError):
            return node.request(subject, 1, timeout=60)


def explain(file, user, action, pattern):
    arguments = ["auth", "explain", user, pattern, "--action", action, "--file", str(file), "--json"]
    if action == "group":
        arguments += ["--group", "work-1"]
    return json.loads(CliRunner().invoke(main, arguments).stdout)[action]["granted"]


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(1, 5)))
@pytest.mark.parametrize("actions", [("subscribe", "group"), ("publish", "request"), ("reply",)])
def test_explain_answers_as_nodes_do(make, directory, tmp_path, seed, actions):
    draw = random.Random(f"{seed} {actions}")
    ring = Keyring(tmp_path, "hub", *USERS)
    own = {one: rules(draw, actions) for one in USERS}
    if actions == ("reply",):
        own = {one: f'{said}\nsubscribe = {{ allow = [">"] }}' for one, said in own.items()}
    ring.permit(draw.choice(["allow", "deny"]), hub=ALL, **own)
    bus = Bus(make, ring, directory)
    if actions == ("publish", "request"):
        bus.serve()
    answers = []
    for number in range(QUESTIONS):
        user, action = draw.choice(USERS), actions[number % len(actions)]
        pattern, subject = spell(draw)
        if action not in ("subscribe", "group"):
            pattern = subject
        answers.append(getattr(bus, action)(user, pattern, subject))
        assert answers[-1] == explain(ring.permissions, user, action, pattern), (user, action, pattern)
    assert {*answers} == {True, False}
