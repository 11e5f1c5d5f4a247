"""Permissions: the subjects on which each user may publish, subscribe, and send requests. Other modules enforce them.

A pattern matches many subjects, and is granted only if all of its subjects are allowed. One `allow` rule must cover the
pattern, and no `deny` rule may overlap the pattern. A refusal contains the rule, an example of a denied subject, and a
remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

from oz.errors import PatternTimeout, SubjectError, Undecidable
from oz.subjects.pattern import Pattern
from oz.subjects.relations import counterexample, covers_by_tokens, prefixes_overlap

Action = Literal["publish", "subscribe", "request", "reply", "group", "history"]
"""Actions that rules allow or deny."""

ACTIONS: tuple[Action, ...] = get_args(Action)

Effect = Literal["allow", "deny"]

_TRIED = 16
"""Maximum number of example subjects that are matched with each rule, and maximum number of rules from which the reason
of a refusal is chosen."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern in an `allow` list or a `deny` list.

    Attributes:
        action: action to which the rule applies.
        effect: "allow" or "deny".
        text: text of the rule in the file.
        pattern: pattern of the subjects to which the rule applies.
        place: position in the file, such as `roles.reader.subscribe.deny[0], line 7`.
        group: pattern for the names of queue groups to which the rule applies, if the action is "group"; None for all
            names.
    """

    action: Action
    effect: Effect
    text: str
    pattern: Pattern
    place: str
    group: Pattern | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.effect} {self.action} {self.text!r}"


@dataclass(frozen=True, slots=True)
class Responses:
    """Limits for replies that need no allow rule (`allow_responses` in the file). A reply answers a received request.

    Attributes:
        count: maximum number of replies to one request.
        seconds: replies are allowed for this time after a request, in seconds.
    """

    count: int = 1
    seconds: float = 5.0

    def __str__(self) -> str:
        what = "reply" if self.count == 1 else "replies"
        return f"allow_responses: {self.count} {what} to each received request, within {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision about one action.

    Attributes:
        granted: whether the action is allowed.
        rule: rule that determined the decision; None if the default did.
        subject: example of a denied subject; None if the action is granted, or if no example is known.
        reason: reason of the decision, as text.
        remedy: change of the file that would allow the action; empty if the action is granted.
    """

    granted: bool
    rule: Rule | None
    subject: str | None
    reason: str
    remedy: str = ""

    @property
    def rule_text(self) -> str:
        """Position and text of the rule that determined the decision, or the default."""
        return 'default = "deny"' if self.rule is None else str(self.rule)

    @property
    def explanation(self) -> str:
        """Reason and remedy."""
        return f"{self.reason}. {self.remedy}" if self.remedy else self.reason


@dataclass(frozen=True, slots=True)
class User:
    """User with one or more keys.

    Attributes:
        name: name of the user in the file.
        keys: public keys of 40 characters. A user has two keys during the change from an old key to a new key.
        roles: names of the user's roles.
        rules: rules of the user and of the user's roles.
        responses: limits for replies without an allow rule; None if each reply needs a rule.
    """

    name: str
    keys: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    responses: Responses | None = None

    def rules_of(self, action: Action, effect: Effect) -> list[Rule]:
        """Return the rules with an effect ("allow" or "deny") that apply to an action."""
        return [rule for rule in self.rules if rule.action == action and rule.effect == effect]


_UNKNOWN_USER = User("a key without a user")
"""User without rules, for keys that are not in the file."""


@dataclass(frozen=True)
class Permissions:
    """Rules of one permission file. The object is immutable.

    Attributes:
        default: decision about an action for which a user has no allow rule, "deny" or "allow".
        users: dict from names to users.
        file: name of the file, for the text of remedies.
    """

    default: Effect = "deny"
    users: Mapping[str, User] = field(default_factory=dict)
    file: str = "the file of permissions"

    def user_of(self, key: str) -> User | None:
        """Return the user with a public key; None if no user has the key."""
        return self._by_key.get(key)

    @cached_property
    def _by_key(self) -> Mapping[str, User]:
        # If two users had the same key, the first user would count. Files with this error are refused.
        return {key: user for user in reversed([*self.users.values()]) for key in user.keys}

    def decide(self, user: User | None, action: Action, asked: Pattern, group: str | None = None) -> Verdict:
        """Return the decision about an action of a user.

        Args:
            user: user that acts; None for a key that is not in the file.
            action: action of the user.
            asked: pattern of the subjects. For a single subject, pass a pattern that matches only this subject.
            group: name of the queue group, if the action is "group".
        """
        verdict = self._decide(user or _UNKNOWN_USER, action, asked, group)
        if verdict.granted:
            return verdict
        # The default decision denies all subjects of the pattern, so that any subject is an example.
        subject = _example(asked) if verdict.rule is None else verdict.subject
        return replace(verdict, subject=subject, remedy=self._remedy(user, verdict.rule))

    def _remedy(self, user: User | None, rule: Rule | None) -> str:
        if user is None:
            return f"To permit it, add a user with the key to {self.file}"
        if rule is not None and rule.effect == "deny":
            return f"To permit it, change this rule in {self.file}"
        return f"To permit it, add an allow rule for {user.name} in {self.file}"

    def _decide(self, user: User, action: Action, asked: Pattern, group: str | None) -> Verdict:
        denying, allowing = user.rules_of(action, "deny"), user.rules_of(action, "allow")
        if action == "group":
            # A member of a group also receives messages, so that the deny rules for "subscribe" apply.
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
            if not named:
                reason = f"{allowing[0]} does not cover the group {group!r}"
                return Verdict(False, allowing[0], _example(asked), reason)
            covered = _allowed_by_one_of(named, asked)
        if action == "reply" and user.responses is not None and not (covered and covered.granted):
            return Verdict(True, None, None, f"{name} has {user.responses}")
        if covered is not None:
            return covered
        granted = self.default == "allow"
        return Verdict(
            granted,
            None,
            None,
            f"{name} has no allow rule for {action}, and the default is {self.default}",
        )

    def may_reply(self, user: User | None, subject: bytes, count: int, age: float) -> bool:
        """Return whether a user may reply to a request.

        Args:
            user: user that replies; None for a key that is not in the file.
            subject: subject of the request, as bytes.
            count: number of replies that the user has already sent to this request.
            age: time since the request was sent, in seconds.
        """
        if user is None or user.responses is None:
            return self.allows(user, "reply", subject)
        if any(_matches(rule, subject, otherwise=True) for rule in user.rules_of("reply", "deny")):
            return False
        if any(_matches(rule, subject, otherwise=False) for rule in user.rules_of("reply", "allow")):
            return True
        return count < user.responses.count and age <= user.responses.seconds

    def allows(self, user: User | None, action: Action, subject: bytes) -> bool:
        """Return whether a user may perform an action on one subject. `decide` also returns the reason.

        Args:
            user: user that acts; None for a key that is not in the file.
            action: any action except "group".
            subject: subject as bytes.
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
    """Return whether the pattern of a rule matches a subject. Return `otherwise` if this is unknown."""
    if not subject.startswith(rule.pattern.prefixes):
        # A comparison of prefixes excludes most rules. It takes a twentieth of the time of a match.
        return False
    try:
        return rule.pattern.matches(subject)
    except (SubjectError, PatternTimeout):
        # A subject that is not UTF-8 has no meaning in a dialect of text, or the match takes too long.
        return otherwise


def _names(rule: Rule, group: str | None) -> bool:
    return rule.group is None or (group is not None and rule.group.matches(group))


def _denied_by(rule: Rule, asked: Pattern) -> Verdict | None:
    try:
        subject = asked.witness(rule.pattern)
    except Undecidable as error:
        return Verdict(False, rule, None, f"it cannot be compared with {rule}: {error}")
    if subject is None:
        return None
    also = "" if subject == asked.text else f"; {asked.text!r} also matches {subject!r}"
    return Verdict(False, rule, subject, f"{rule}{also}")


def _allowed_by_one_of(rules: Sequence[Rule], asked: Pattern) -> Verdict:
    # There may be thousands of rules, but most have other prefixes. If no rule is near, the pattern may still be
    # covered, because any rule covers a pattern that matches no subject. Therefore one rule remains.
    near = [rule for rule in rules if prefixes_overlap(rule.pattern, asked)] or rules[:1]
    undecided: Verdict | None = None
    beyond: dict[str, None] = {}
    uncovering: list[tuple[Rule, str]] = []
    # Rules whose tokens cover the pattern go first, because they need no automaton.
    for rule in sorted(near, key=lambda rule: not covers_by_tokens(rule.pattern, asked)):
        # A subject that one rule does not match often shows that other rules do not cover the pattern either. This
        # check needs no automaton.
        found = next((subject for subject in beyond if not _may_match(rule, subject)), None)
        try:
            if found is None and (found := counterexample(rule.pattern, asked)) is None:
                return Verdict(True, rule, None, str(rule))
        except Undecidable as error:
            reason = f"it cannot be compared with {rule}: {error}"
            undecided = undecided or Verdict(False, rule, None, reason)
        else:
            if len(beyond) < _TRIED:
                beyond[found] = None
            uncovering.append((rule, found))
    return undecided if undecided is not None and not uncovering else _not_covered(uncovering, asked)


def _example(asked: Pattern) -> str | None:
    if asked.is_literal:
        return str(asked.text)
    with suppress(Undecidable):
        return asked.witness(asked)
    return None


def _not_covered(rules: Sequence[tuple[Rule, str]], asked: Pattern) -> Verdict:
    """Return the refusal of a pattern that no rule covers.

    Args:
        rules: pairs of a rule and a subject that the rule does not match.
        asked: refused pattern.
    """
    last = reversed(rules[-_TRIED:])
    rule, beyond = next((pair for pair in last if _overlap(pair[0].pattern, asked)), rules[0])
    with suppress(Undecidable):
        # This is the shortest subject.
        beyond = counterexample(rule.pattern, asked) or beyond
    return Verdict(False, rule, beyond, f"{rule} does not cover {beyond!r}")


def _may_match(rule: Rule, subject: str) -> bool:
    return _matches(rule, subject.encode(errors="surrogateescape"), otherwise=True)


def _overlap(pattern: Pattern, other: Pattern) -> bool:
    try:
        return pattern.overlaps(other)
    except Undecidable:
        return False
