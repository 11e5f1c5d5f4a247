"""Runs of what keys may subscribe to and publish, while those that are trusted and their rules change.

Each answer is held against the rules themselves, by all the subjects that there are of a few words.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from random import Random

import oz
from oz.message import Extras
from oz.protocol.publisher import access
from oz.protocol.publisher.access import Access, Rights
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber import publish_access
from oz.protocol.subscriber.publish_access import PublishAccess
from oz.security.permissions import Permissions, Rule, User
from oz.wire.denials import Denial
from oz.wire.keys import Declared, pattern_key
from simulation.changing import changed
from simulation.ledger import check, matches
from simulation.losing import check_forgotten, check_losers
from simulation.prefixes import check_prefixes, check_remembered
from simulation.schedule import Fault

KEYS = [name.ljust(40, "0") for name in ("one", "two", "three", "nobody")]
TEXTS = "a.*", "a.>", ">", "b.x", "*.x", "a.x.>", "b.>", "*", "a.x"
GROUPS = ("g", "g*", "other")
SUBJECTS = tuple(".".join(words) for size in (1, 2, 3, 4) for words in product("abxq", repeat=size))
"""All of some words, one of which no pattern names, and longer than any pattern."""

INBOX, THEIRS = "_INBOX.own", "_INBOX.theirs"
STEPS, FEW = 60, 8
"""Things that happen in a run, and answers that are remembered at once."""

KINDS = {"trust": 3, "permit": 3, "ask": 12, "ask_for_key": 10, "publish": 12, "speak": 6, "look": 6}


@cache
def _about(text):
    return frozenset(one for one in SUBJECTS if matches(text, one))


@cache
def _pattern(text, dialect="nats"):
    return oz.compile(text, dialect)


class Reserved:
    """Decides about inboxes and names: whose they are is known without rules."""

    def reaches(self, pattern):
        return pattern.text.startswith("_INBOX.")

    def denial(self, key, pattern, permissions):
        return None if pattern.text == INBOX else Denial("it is somebody else's")

    def denial_of_prefix(self, prefix, permissions):
        return Denial("inboxes begin so") if "_INBOX".startswith(prefix.decode()) else None

    def owns(self, key, origin):
        return origin != b"p3"

    def is_special(self, subject):
        return subject.startswith(b"_INBOX.")

    def may_say(self, key, subject, permissions):
        return subject != THEIRS.encode()

    def may_ask(self, key, reply_to, permissions):
        return reply_to != THEIRS


class GrantWorld:
    """A publisher's access and a subscriber's, and some keys."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 17)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        kinds = random.choices(list(KINDS), list(KINDS.values()), k=STEPS)
        every = [Fault(at, kind, (), 0.0) for at, kind in enumerate(kinds)]
        self.faults = every if faults is None else faults
        self.trusted, self.permissions, self.has_changed = set(KEYS[:2]), None, False
        self.rights = Rights(frozenset(self.trusted), None)
        self.stats, self.reserved = SubscriberStats(), Reserved() if random.random() < 0.5 else None
        self.delimiter = random.choice((b"", b"; "))
        self.access = Access(lambda: self.rights, "nats", self.delimiter, self.reserved)
        self.publishing = PublishAccess(lambda: self.rights, self.stats)
        check(not self.publishing.has_denied, "nothing was looked at, and something was denied")
        self.publishing.rules = self.reserved
        self.owners = {}

    def run(self):
        """Let everything happen, and check what must be so."""
        with changed((access, "MOST_REMEMBERED", FEW), (publish_access, "MOST_REMEMBERED", FEW)):
            for fault in self.faults:
                getattr(self, f"_{fault.kind}")()
                remembered = [self.access.answers, *self.publishing.allowed.values()]
                check(max(map(len, remembered)) <= FEW, "more is remembered than {}", FEW)
        for _ in range(3):
            check_losers(self.random)
            check_forgotten(self.random)
        check_prefixes(self.random)
        check_remembered(self.random)
        return self

    # what changes ----------------------------------------------------------------------------------------

    def _trust(self):
        self.trusted ^= {self.random.choice(KEYS)}
        self._change()

    def _permit(self):
        users = {key: User(key.rstrip("0"), (key,), rules=tuple(self._rules())) for key in KEYS[:3]}
        everything = self.random.random() < 0.2
        self.permissions = None if everything else Permissions(self.random.choice(("allow", "deny")), users)
        self._change()

    def _change(self):
        self.rights, self.has_changed = Rights(frozenset(self.trusted), self.permissions), True

    def _rules(self):
        for number in range(self.random.randrange(5)):
            action = self.random.choice(("subscribe", "subscribe", "publish", "group", "request"))
            effect, text = self.random.choice(("allow", "allow", "deny")), self.random.choice(TEXTS)
            group = _pattern(self.random.choice(GROUPS), "redis") if action == "group" else None
            yield Rule(action, effect, text, _pattern(text), f"rule {number}", group)

    def _look(self):
        """Others are the rights once for each change."""
        found = self.access.has_changed()
        check(
            found == self.has_changed, "the rights are others: {}, and it is told {}", self.has_changed, found
        )
        self.has_changed = False

    # what must be so -------------------------------------------------------------------------------------

    def _decide(self, key, action, asked, group=None):
        """Decide by reading the rules; give the rules that deny, too."""
        user = self.permissions.user_of(key)
        rules = () if user is None else user.rules
        named = [one for one in rules if one.group is None or one.group.matches(group or "")]
        wanted = {action, "subscribe"} if group else {action}
        denying = [
            one for one in named if one.effect == "deny" and one.action in wanted and _about(one.text) & asked
        ]
        allowing = [one for one in rules if one.effect == "allow" and one.action == action]
        if group and not allowing and self.permissions.default == "allow":
            allowing = [one for one in rules if one.effect == "allow" and one.action == "subscribe"]
        if not allowing:
            return not denying and self.permissions.default == "allow", denying
        covering = [one for one in allowing if one in named and asked <= _about(one.text)]
        return bool(covering) and not denying, denying

    def _ask_for_inbox(self):
        """Ask for what nodes keep to themselves: it is nobody's by rules about other subjects."""
        self._look()
        key, text = self.random.choice(KEYS), self.random.choice((INBOX, THEIRS, "_INBOX.>"))
        denial = self.access.denial(key, [_pattern(text)])
        may = key in self.trusted and text == INBOX
        check((denial is None) == may, "{} is given {}: {}", key, text, denial)
        if key in self.trusted:
            for prefix in (b"_", b"_INBOX", b""):
                denied = self.permissions is None or self.access.denial_of_key(key, prefix)
                check(denied, "{} may have all that begins with {}", key, prefix)

    def _check_denial(self, denial, key, action, asked, group=None):
        if key not in self.trusted:
            check(denial is not None, "{} is not trusted, and is granted {}", key, action)
            return
        granted, denying = True, ()
        if self.permissions is not None:
            granted, denying = self._decide(key, action, asked, group)
        check(
            (denial is None) == granted, "{} of {} is granted: {}, and it is {}", action, key, granted, denial
        )
        if denying:
            check(denial.rule in map(str, denying), "{} is denied by {}", action, denial.rule)
            check(denial.subject in _about(denying[0].text) or len(denying) > 1, "{}", denial.subject)
        self.mechanisms["subscription granted" if granted else "subscription denied"] += 1

    def _ask(self):
        if self.reserved is not None and self.random.random() < 0.2:
            self._ask_for_inbox()
            return
        key, text = self.random.choice(KEYS), self.random.choice(TEXTS)
        group = self.random.choice(("", "", "g", "group"))
        if self.random.random() < 0.8:
            self._look()
        is_new = key not in self.access.rights.trusted
        denial = self.access.denial(key, [_pattern(text)], group)
        check(not is_new or self.access.rights is self.rights, "{} was trusted, and is not answered so", key)
        # Until somebody looks, whoever was trusted is answered by the rights of before.
        if self.access.rights is self.rights:
            self._check_denial(denial, key, "group" if group else "subscribe", _about(text), group or None)

    def _ask_for_key(self):
        """Ask for what is a key of ZeroMQ's: a shared pattern, or all that begins somehow."""
        self._look()
        key = self.random.choice(KEYS)
        if self.random.random() < 0.5:
            text = self.random.choice(TEXTS)
            denial = self.access.denial_of_key(key, pattern_key(Declared(1, text.encode())))
            asked = _about(text)
        elif self.delimiter and self.random.random() < 0.5:
            # A prefix that ends behind the subject asks for that alone, and in the delimiter for it, too.
            subject, size = self.random.choice(("a", "a.x", "b.x", "q")), self.random.choice((1, 2, 3))
            denial = self.access.denial_of_key(key, subject.encode() + (self.delimiter + b"5")[:size])
            asked = frozenset((subject,))
            if size == 1 and self.permissions is not None and key in self.trusted:
                may = self._decide(key, "subscribe", asked)[0]
                check(may or denial is not None, "{} may not have {!r} and what follows", key, subject)
                return
        else:
            prefix = self.random.choice(("", "a", "a.", "b.x", "b.x.", "q"))
            denial = self.access.denial_of_key(key, prefix.encode())
            # Longer ones than there are here begin so, too.
            asked = frozenset(one for one in SUBJECTS if one.startswith(prefix)) | {f"{prefix or 'q.'}q"}
            if self.permissions is not None and key in self.trusted:
                granted = denial is None
                may = self._decide(key, "subscribe", asked & frozenset(SUBJECTS))[0]
                check(may or not granted, "{} may not have all that begins with {!r}", key, prefix)
                return
        self._check_denial(denial, key, "subscribe", asked)

    def _speak(self):
        """Speak in a name: it is the first one's who uses it, and of those who are trusted."""
        self.publishing.key = key = self.random.choice((*KEYS, None))
        origin, count = self.random.choice((b"p1", b"p2", b"p3")), self.random.choice((1, 5))
        before = self.stats.denied
        found = self.publishing.owns(origin, count)
        if key is None:
            check(found == (origin not in self.owners), "{} is spoken for inside", origin)
            return
        may = key in self.trusted
        if self.reserved is not None:
            may &= self.reserved.owns(key, origin)
        elif may:
            may = self.owners.setdefault(origin, key) == key
        check(found == may, "{} speaks as {}: {}", key, origin, found)
        told = self.stats.denied - before
        check(told == (0 if may else count), "{} are counted as denied, of {}", told, count)
        check(self.publishing.has_denied != may, "{}: it is told that it was denied", key)

    def _publish(self):
        """Publish some messages, and ask: all is taken that it may say, and nothing else."""
        key = self.publishing.key = self.random.choice((*KEYS, None))
        if not self.publishing.owns(key and key.encode(), 1):
            return
        if key is None:
            check(not self.publishing.denied([b"a", THEIRS.encode()]), "something is denied inside a process")
            return
        subjects = self.random.choices((*SUBJECTS[:60], INBOX, THEIRS), k=self.random.choice((1, 3, 8)))
        extras = None
        if self.random.random() < 0.5:
            inboxes = self.random.choices((None, INBOX, THEIRS), k=len(subjects))
            extras = [None if one is None else Extras(None, one, None, None) for one in inboxes]
        before = self.stats.denied
        found = self.publishing.denied([one.encode() for one in subjects], extras)
        inboxes = [None] * len(subjects) if extras is None else [one and one.reply_to for one in extras]
        pairs = zip(subjects, inboxes, strict=True)
        expected = [place for place, (one, inbox) in enumerate(pairs) if not self._may(key, one, inbox)]
        check(found == expected, "{} may not publish {}, and that is {}", key, expected, found)
        check(self.stats.denied - before == len(found), "{} are counted of {}", self.stats.denied, found)
        one = self.random.choice(subjects)
        may = self._may(key, one, None)
        check(self.publishing.allows(one.encode()) == may, "{} may publish {}: {}", key, one, may)
        self.mechanisms["message denied"] += len(found)
        self.mechanisms["message allowed"] += len(subjects) - len(found)

    def _may(self, key, subject, inbox):
        rules = self.publishing.rules
        if rules is not None:
            raw = subject.encode()
            if (inbox is not None and not rules.may_ask(key, inbox, None)) or (
                rules.is_special(raw) and not rules.may_say(key, raw, None)
            ):
                return False
            if rules.is_special(raw):
                return True
        if self.permissions is None:
            return True
        user = self.permissions.user_of(key)
        action = "publish" if inbox is None else "request"
        ours = [one for one in (() if user is None else user.rules) if one.action == action]
        if any(one.effect == "deny" and matches(one.text, subject) for one in ours):
            return False
        allowing = [one for one in ours if one.effect == "allow"]
        if not allowing:
            return self.permissions.default == "allow"
        return any(matches(one.text, subject) for one in allowing)
