"""Permissions: who may publish, subscribe to and ask for what. Decisions only; files are read elsewhere.

A pattern stands for many subjects, so it is granted as a whole or not at all: one rule that allows must cover
it, and no rule that denies may overlap it. A refusal names the rule and a subject that shows why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from oz.errors import PatternTimeout, SubjectError, Undecidable
from oz.subjects.pattern import Pattern
from oz.subjects.relations import counterexample, covers_by_tokens, prefixes_overlap

Action = Literal["publish", "subscribe", "request", "reply", "group", "history"]
"""What somebody may be allowed to do."""

ACTIONS: tuple[Action, ...] = get_args(Action)

_DOES: Mapping[Action, str] = {
    "publish": "publish",
    "subscribe": "subscribe",
    "request": "ask",
    "reply": "answer",
    "group": "join a group",
    "history": "read what was recorded",
}

Effect = Literal["allow", "deny"]

_TRIED = 16
"""Subjects that are tried on each rule, and rules of which the nearest is found, where there are many."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern in a list of what is allowed or denied.

    Attributes:
        action: what it is about.
        effect: "allow" or "deny".
        text: the rule as it was written.
        pattern: the subjects.
        place: where it was written, such as `roles.reader.subscribe.deny[0], line 7`.
        group: the names of the queue groups, of a rule about "group".
    """

    action: Action
    effect: Effect
    text: str
    pattern: Pattern
    place: str
    group: Pattern | None = None

    def __str__(self) -> str:
        """Show the rule as it was written, and where."""
        return f"{self.place}: {self.effect} {self.action} {self.text!r}"


@dataclass(frozen=True, slots=True)
class Responses:
    """The replies that somebody may send to the inbox of each request that came, without a rule for it.

    Attributes:
        count: how many replies.
        seconds: for how long after the request.
    """

    count: int = 1
    seconds: float = 5.0

    def __str__(self) -> str:
        """Show it in words."""
        what = "reply" if self.count == 1 else "replies"
        return f"allow_responses: {self.count} {what} to each request that came, for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one question.

    Attributes:
        granted: whether it is allowed.
        rule: the rule that decided; None where no rule did.
        subject: where it is refused, a subject that was asked for and must not be had; None where none can
            be named.
        reason: the decision in words.
    """

    granted: bool
    rule: Rule | None
    subject: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a key.

    Attributes:
        name: what rules call it.
        keys: public keys, of 40 characters each; two while one replaces the other.
        roles: names of the roles.
        rules: the user's own and those of the roles.
        responses: what it may reply without a rule; None for nothing.
    """

    name: str
    keys: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    responses: Responses | None = None

    def rules_of(self, action: Action, effect: Effect) -> list[Rule]:
        """Return the rules that allow, or deny, an action."""
        return [rule for rule in self.rules if rule.action == action and rule.effect == effect]


_NOBODY = User("this key")
"""What rules a key has that belongs to nobody: none."""


@dataclass(frozen=True)
class Permissions:
    """All that is allowed to whom; it does not change.

    Attributes:
        default: what becomes of an action that no rule allows to anybody of this kind: "deny" or "allow".
        users: by name.
    """

    default: Effect = "deny"
    users: Mapping[str, User] = field(default_factory=dict)

    def user_of(self, key: str) -> User | None:
        """Return the user that has a public key; None when nobody has it."""
        return self._by_key.get(key)

    @cached_property
    def _by_key(self) -> Mapping[str, User]:
        # Of two with one key the first counts, though a file cannot say that.
        return {key: user for user in reversed([*self.users.values()]) for key in user.keys}

    def decide(self, user: User | None, action: Action, asked: Pattern, group: str | None = None) -> Verdict:
        """Decide whether somebody may do something.

        Args:
            user: who; None for a key that belongs to nobody.
            action: what.
            asked: the subjects: a pattern, or one subject as a pattern that matches only that.
            group: the queue group, of the action "group".
        """
        user = user or _NOBODY
        denying, allowing = user.rules_of(action, "deny"), user.rules_of(action, "allow")
        if action == "group":
            # Who joins a group reads what it is about.
            denying += user.rules_of("subscribe", "deny")
            if not allowing and self.default == "allow":
                action, allowing = "subscribe", user.rules_of("subscribe", "allow")
        name = user.name
        for rule in denying:
            if _names(rule, group):
                verdict = _denied_by(rule, asked)
                if verdict is not None:
                    return verdict
        covered = None
        if allowing:
            named = [rule for rule in allowing if _names(rule, group)]
            covered = _allowed_by_one_of(named, asked, name, action)
        if action == "reply" and user.responses is not None and not (covered and covered.granted):
            return Verdict(True, None, None, f"{name} has {user.responses}")
        if covered is not None:
            return covered
        granted = self.default == "allow"
        return Verdict(
            granted,
            None,
            None,
            f"no rule allows {name} to {_DOES[action]}, and the default is {self.default}",
        )

    def may_reply(self, user: User | None, subject: bytes, count: int, age: float) -> bool:
        """Tell whether somebody may answer a request.

        Args:
            user: who; None for a key that belongs to nobody.
            subject: of the request, as it goes over the wire.
            count: the replies that it has given to it before.
            age: seconds since it was asked.
        """
        if user is None or user.responses is None:
            return self.allows(user, "reply", subject)
        if any(_matches(rule, subject, otherwise=True) for rule in user.rules_of("reply", "deny")):
            return False
        if any(_matches(rule, subject, otherwise=False) for rule in user.rules_of("reply", "allow")):
            return True
        return count < user.responses.count and age <= user.responses.seconds

    def allows(self, user: User | None, action: Action, subject: bytes) -> bool:
        """Tell whether somebody may do something on one subject; `decide` says why.

        Args:
            user: who; None for a key that belongs to nobody.
            action: what; not "group".
            subject: as it came over the wire.
        """
        ours = () if user is None else user.rules
        ours = tuple(rule for rule in ours if rule.action == action)
        if any(rule.effect == "deny" and _matches(rule, subject, otherwise=True) for rule in ours):
            return False
        allowing = [rule for rule in ours if rule.effect == "allow"]
        if not allowing:
            return self.default == "allow"
        return any(_matches(rule, subject, otherwise=False) for rule in allowing)


def _matches(rule: Rule, subject: bytes, *, otherwise: bool) -> bool:
    """Tell whether a rule is about a subject; `otherwise` where that cannot be told in time."""
    if not subject.startswith(rule.pattern.prefixes):
        # A twentieth of what matching takes, and most of what denies is about others.
        return False
    try:
        return rule.pattern.matches(subject)
    except SubjectError:  # not UTF-8, in a dialect of text
        return False
    except PatternTimeout:
        return otherwise


def _names(rule: Rule, group: str | None) -> bool:
    return rule.group is None or (group is not None and rule.group.matches(group))


def _denied_by(rule: Rule, asked: Pattern) -> Verdict | None:
    """Refuse what overlaps a rule that denies; None where it does not."""
    try:
        subject = asked.witness(rule.pattern)
    except Undecidable as error:
        return Verdict(False, rule, None, f"whether {rule} concerns it cannot be told: {error}")
    if subject is None:
        return None
    also = "" if subject == asked.text else f"; {asked.text!r} also matches {subject!r}"
    return Verdict(False, rule, subject, f"{rule}{also}")


def _allowed_by_one_of(rules: Sequence[Rule], asked: Pattern, name: str, action: Action) -> Verdict:
    """Grant what one rule covers; otherwise say what the nearest does not cover."""
    # The rest is about subjects that begin otherwise, and there may be thousands. A pattern of nothing is
    # covered by any.
    near = [rule for rule in rules if prefixes_overlap(rule.pattern, asked)] or rules[:1]
    undecided: Verdict | None = None
    beyond: dict[str, None] = {}
    uncovering: list[tuple[Rule, str]] = []
    # What is surely covered needs no automaton.
    for rule in sorted(near, key=lambda one: not covers_by_tokens(one.pattern, asked)):
        # What one rule leaves out mostly shows that others do not cover it either, which costs no automaton.
        found = next((one for one in beyond if not _may_match(rule, one)), None)
        try:
            if found is None and (found := counterexample(rule.pattern, asked)) is None:
                return Verdict(True, rule, None, str(rule))
        except Undecidable as error:
            reason = f"whether {rule} covers it cannot be told: {error}"
            undecided = undecided or Verdict(False, rule, None, reason)
        else:
            if len(beyond) < _TRIED:
                beyond[found] = None
            uncovering.append((rule, found))
    if uncovering:
        return _not_covered(uncovering, asked)
    return undecided or Verdict(False, None, None, f"no rule allows {name} to {_DOES[action]} of this name")


def _not_covered(rules: Sequence[tuple[Rule, str]], asked: Pattern) -> Verdict:
    """Refuse what none of some rules covers, each with a subject that it leaves out."""
    last = reversed(rules[-_TRIED:])
    rule, beyond = next((one for one in last if _overlap(one[0].pattern, asked)), rules[0])
    with suppress(Undecidable):
        # A shortest one.
        beyond = counterexample(rule.pattern, asked) or beyond
    return Verdict(False, rule, beyond, f"{rule} does not cover {beyond!r}")


def _may_match(rule: Rule, subject: str) -> bool:
    return _matches(rule, subject.encode(errors="surrogateescape"), otherwise=True)


def _overlap(pattern: Pattern, other: Pattern) -> bool:
    try:
        return pattern.overlaps(other)
    except Undecidable:
        return False
