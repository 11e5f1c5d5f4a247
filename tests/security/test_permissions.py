"""Permissions grant a pattern if one allow rule covers it and no deny rule overlaps it."""

from dataclasses import replace

import oz
from oz.security.permissions import Permissions, Responses, Rule, User
from oz.subjects import relations
from support.cases import each


def rule(effect, text, action="subscribe", group=None):
    named = None if group is None else oz.compile(group, "redis")
    return Rule(action, effect, text, oz.compile(text), f"{effect} {text}", named)


def permissions(*rules, default="deny"):
    return Permissions(default, {"desk": User("desk", ("k" * 40,), (), rules)})


def decide(found, asked, action="subscribe", group=None):
    return found.decide(found.users["desk"], action, oz.compile(asked), group)


@each(
    ("asked", "granted", "subject"),
    [
        ("md.eu.>", True, None),
        ("md.x", True, None),
        ("md.*", False, "md.secret"),
        ("md.>", False, "md.secret"),
        ("md.secret.a", False, "md.secret.a"),
        ("redis:md.*", False, "md.secret"),
        ("zmq:md.s", False, "md.secret"),
        ("regex:md[.](?=x).*", False, None),
        ("orders.new", False, "orders.new"),
        ("zmq:", False, "md.secret"),
    ],
)
def test_a_pattern_is_granted_as_a_whole_or_refused_with_a_subject(asked, granted, subject):
    found = permissions(rule("allow", "md.>"), rule("deny", "md.secret"), rule("deny", "md.secret.>"))
    verdict = decide(found, asked)
    assert (verdict.granted, verdict.subject) == (granted, subject)
    assert verdict.granted or verdict.rule is not None


def test_what_is_granted_needs_no_automaton_whatever_other_rules_there_are(monkeypatch):
    # With automata 10,000 subscriptions took the publisher 25 s of processor, and were not answered in time.
    monkeypatch.setattr(relations, "automaton_of", None)
    rules = [rule("deny", "orders"), rule("deny", "md.*.secret.>"), rule("deny", "*.k0.>")]
    found = permissions(*rules, rule("allow", "md.k1.a"), rule("allow", "*.k2.*"), rule("allow", "md.>"))
    assert decide(found, "md.k1.*").granted


@each("asked", ["c.>", "zmq:c", "*.x", "mqtt:+/x"])
def test_what_no_rule_allows_needs_few_automata_though_there_are_many(monkeypatch, asked):
    """With an automaton for each rule, a publisher stopped for seconds and dropped the automata of other patterns."""
    made = set()
    make = relations.automaton_of
    monkeypatch.setattr(relations, "automaton_of", lambda item: made.add(item) or make(item))
    rules = [rule("allow", f"a{number}.>") for number in range(500)]
    verdict = decide(permissions(*rules), asked)
    assert not verdict.granted
    assert "does not cover" in verdict.reason
    assert len(made) < 20


def test_what_cannot_be_told_is_refused_in_words():
    verdict = decide(permissions(rule("allow", "regex:md[.](?=x).*")), "md.x.y")
    assert not verdict.granted or verdict.rule.text == "regex:md[.](?=x).*"
    verdict = decide(permissions(rule("allow", "regex:md[.](?=x).*")), "md.*")
    assert not verdict.granted
    assert "cannot be compared" in verdict.reason


def test_two_rules_that_cover_it_only_together_do_not_grant_it():
    found = permissions(rule("allow", "md.a.*"), rule("allow", "md.b.*"))
    assert decide(found, "md.a.*").granted
    assert not decide(found, "regex:md[.][ab][.]x").granted


@each("default", ["allow", "deny"])
def test_the_default_decides_what_no_rule_allows_to_anybody(default):
    found = permissions(rule("deny", "md.secret"), rule("allow", "x", "publish"), default=default)
    assert decide(found, "md.x").granted is (default == "allow")
    assert not decide(found, "md.*").granted
    assert not decide(found, "y", "publish").granted  # only the listed subjects are allowed
    assert decide(found, "x", "publish").granted


def test_nobody_has_what_the_default_gives():
    for default in ("allow", "deny"):
        verdict = Permissions(default).decide(None, "subscribe", oz.compile("md.x"))
        assert verdict.granted is (default == "allow")
        assert "a key without a user has no allow rule for subscribe" in verdict.reason


@each(
    ("user", "action", "asked", "group", "subject", "rule_text", "explained"),
    [
        (
            "desk", "subscribe", "md.*", None, "md.secret", "deny md.secret: deny subscribe 'md.secret'",
            "deny md.secret: deny subscribe 'md.secret'; 'md.*' also matches 'md.secret'. "
            "To permit it, change this rule in bus.toml",
        ),
        (
            "desk", "subscribe", "x.y", None, "x.y", "allow md.>: allow subscribe 'md.>'",
            "allow md.>: allow subscribe 'md.>' does not cover 'x.y'. "
            "To permit it, add an allow rule for desk in bus.toml",
        ),
        (
            "desk", "request", "svc.*", None, "svc.a", 'default = "deny"',
            "desk has no allow rule for request, and the default is deny. "
            "To permit it, add an allow rule for desk in bus.toml",
        ),
        (
            "desk", "group", "md.x", "other", "md.x", "allow md.>: allow group 'md.>'",
            "allow md.>: allow group 'md.>' does not cover the group 'other'. "
            "To permit it, add an allow rule for desk in bus.toml",
        ),
        (
            "stranger", "publish", "x", None, "x", 'default = "deny"',
            "a key without a user has no allow rule for publish, and the default is deny. "
            "To permit it, add a user with the key to bus.toml",
        ),
    ],
)  # fmt: skip
def test_refusal_has_a_subject_a_rule_and_a_remedy(user, action, asked, group, subject, rule_text, explained):
    rules = (rule("allow", "md.>"), rule("deny", "md.secret"), rule("allow", "md.>", "group", "work-*"))
    found = replace(permissions(*rules), file="bus.toml")
    verdict = found.decide(found.users.get(user), action, oz.compile(asked), group)
    assert (verdict.subject, verdict.rule_text, verdict.explanation) == (subject, rule_text, explained)


def test_a_rule_of_groups_is_about_their_names_too():
    found = permissions(rule("allow", "md.>", "group", "work-*"), rule("deny", "md.eu.>", "group", "work-1"))
    assert decide(found, "md.us.x", "group", "work-1").granted
    assert decide(found, "md.eu.x", "group", "work-2").granted
    assert not decide(found, "md.eu.x", "group", "work-1").granted
    assert not decide(found, "md.us.x", "group", "other").granted
    assert not decide(found, "md.us.x").granted  # groups alone grant no subscription


def test_who_may_not_subscribe_may_not_join_a_group_for_it_either():
    found = permissions(
        rule("allow", "md.>"), rule("deny", "md.secret.>"), rule("allow", "md.>", "group", "work-*")
    )
    assert decide(found, "md.eu.>", "group", "work-1").granted
    verdict = decide(found, "md.*.x", "group", "work-1")
    assert (verdict.granted, verdict.subject) == (False, "md.secret.x")


def test_the_default_grants_no_group_for_what_a_list_of_subscriptions_does_not_allow():
    found = permissions(rule("allow", "md.>"), default="allow")
    assert decide(found, "md.x", "group", "any").granted
    assert not decide(found, "orders.x", "group", "any").granted


def test_replies_go_by_rules_and_then_by_number_and_time():
    rules = (rule("allow", "svc.>", "reply"), rule("deny", "svc.x", "reply"))
    limited = User("limited", ("k",), (), rules, Responses(count=2, seconds=5.0))
    found = Permissions("allow", {"limited": limited})

    def may(subject, count=0, age=0.0, user=limited):
        return found.may_reply(user, subject, count, age)

    assert may(b"svc.a", count=99, age=99.0)
    assert not may(b"svc.x")
    assert may(b"other", count=1, age=5.0)
    assert not may(b"other", count=2)
    assert not may(b"other", age=5.1)
    assert may(b"other", count=99, user=None)
    assert not replace(found, default="deny").may_reply(None, b"other", 0, 0.0)


@each(
    ("subject", "is_allowed"),
    [(b"md.secret.x", False), (b"md.secret.\xff", False), (b"md.\xff", True), (b"other.\xff", False)],
)
def test_a_deny_rule_for_text_denies_subjects_that_are_not_text_behind_its_prefix(subject, is_allowed):
    found = permissions(rule("allow", "zmq:md.", "publish"), rule("deny", "md.secret.>", "publish"))
    assert found.allows(found.users["desk"], "publish", subject) is is_allowed
