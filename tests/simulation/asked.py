"""What must be so of a subscriber that asks: who is ready, drained, denied, alone and told of deaths."""

from __future__ import annotations

from collections import Counter

from oz.protocol.subscriber.absences import UNCOUNTED
from oz.protocol.subscriber.declarations import MOST_SMALL
from oz.protocol.subscriber.publishers import SILENCE
from oz.wire.keys import DECLARATION, PATTERN, STREAM, stream_of
from simulation.answerers import SECRET, parse_declaration
from simulation.ledger import check

DEATH_TOLD = 1.8
"""Seconds behind those promised in which is told of somebody that has died: until the next look, and the one
behind that."""

MOST_KEYS = MOST_SMALL + 8
"""Parts in which patterns are declared once all is well, beside those that are denied."""


def asked_on(world, name):
    return [
        one.text.decode()
        for key in world.asked
        if key[:3] == DECLARATION and stream_of(key) == name
        for one in parse_declaration(key).patterns
    ]


def name_of(world, subscription):
    return world.streams.homes[subscription].name


def check_asked(world):
    """What is wanted is declared, nothing on streams that there are not, and the newest is known."""
    asked, newest = {}, {}
    for key in world.asked:
        if key[:3] == DECLARATION:
            said = parse_declaration(key)
            check(not said.is_closing, "a goodbye is asked for still")
            asked.setdefault(said.stream, set()).update(one.text.decode() for one in said.patterns)
            if said.patterns:
                newest[said.stream] = max(said.chunk, newest.get(said.stream, 0))
    check(world.streams.asked() == newest, "{} are the newest, and not {}", newest, world.streams.asked())
    if not world.streams.is_collecting:
        for subscription in world.subscriptions:
            if subscription in world.streams.homes:
                texts = {str(one.text) for one in subscription.patterns}
                missing = texts - asked.get(name_of(world, subscription), set())
                check(not missing, "{} is declared nowhere", missing)


def check_drained(world, subscription):
    """Nothing is on its way any more for what was drained: no publisher holds it that answers."""
    world.mechanisms["asker drained"] += 1
    name = name_of(world, subscription)
    others = [one for one in (*world.subscriptions, *world.draining) if name_of(world, one) == name]
    wanted = {str(p.text) for one in others if one is not subscription for p in one.patterns}
    gone = {str(one.text) for one in subscription.patterns} - wanted
    for publisher in world.publishers:
        if publisher.is_steady():
            held = {p.text.decode() for one in publisher.holds(name) for p in one.patterns}
            check(not held & gone, "{} was drained, and a publisher holds it", held & gone)


def check_ready(world):
    """Who is ready is known to each publisher that answers."""
    world.mechanisms["asker ready"] += 1
    for publisher in world.publishers:
        if not publisher.is_steady():
            continue
        # Whoever has answered nothing yet is missed by how many connections are expected: here by one.
        is_known = publisher.origin in world.streams.publishers.origins()
        has_answered = not is_known or world.streams.has_answered(publisher.origin)
        check(has_answered, "it is ready without an answer")
        for name, subscriptions in by_name(world).items() if is_known else ():
            held = {p.text.decode() for one in publisher.holds(name) for p in one.patterns}
            wanted = {str(p.text) for one in subscriptions for p in one.patterns}
            check(wanted <= held, "it is ready, and a publisher does not know of {}", wanted - held)


def by_name(world):
    found = {}
    for one in world.subscriptions:
        found.setdefault(name_of(world, one), []).append(one)
    return found


def check_calm(world):
    """All is known to everybody, each denial is told of who it concerns, and nothing is asked in vain."""
    there = [one for one in world.publishers if not one.ended]
    streams = world.streams
    if there:
        check(streams.is_ready(len(there), world.ns()), "it is not ready: {}", streams.unready())
        check(not streams.unready()["unanswered"], "unanswered is {}", streams.unready())
    check(not world.draining or not there, "it drains still")
    is_alone = world.links.is_alone()
    check(is_alone == (not there), "{} are there, and it is alone: {}", len(there), is_alone)
    if there:
        check(streams.unready()["publishers"] == len(there), "{} are there", streams.unready())
        secret = Counter(
            one for one in world.subscriptions if any(SECRET in str(p.text) for p in one.patterns)
        )
        found = Counter(one for one, _ in streams.denied())
        told = Counter(map(str, world.decoder.answers.denials))
        texts = {str(p.text) for one in secret for p in one.patterns if SECRET in str(p.text)}
        missing = {f"{text} is secret" for text in texts} - told.keys()
        check(not missing, "nobody is told that {}", missing)
        # Once more where a publisher had forgotten it.
        most = len(world.publishers) + len(world.faults)
        often = {one: times for one, times in told.items() if times > most}
        check(not often, "denials are told again and again: {}", often)
        check(set(found) == set(secret), "{} are denied, and {} are said to be", len(secret), len(found))
    wanted = {
        name: {str(p.text) for one in some for p in one.patterns} for name, some in by_name(world).items()
    }
    for one in world.draining:
        wanted.setdefault(name_of(world, one), set())
    keys = Counter()
    for key in world.asked:
        if key[:3] == DECLARATION:
            said = parse_declaration(key)
            keys[said.stream, bool(said.patterns)] += 1
            texts = {one.text.decode() for one in said.patterns}
            check(said.stream in wanted, "something is declared on a stream of nobody")
            check(texts <= wanted[said.stream], "{} is declared, and nobody asks", texts)
        else:
            check(key in streams.by_key, "{!r} is listened to, and nobody asks", key)
    for (name, has_patterns), count in keys.items():
        most = MOST_KEYS + sum(SECRET in text for text in asked_on(world, name)) if has_patterns else 1
        check(count <= most, "{} keys stand of one stream", count)


def check_traffic(world, before, looks):
    """Where nothing happens nothing is asked but to show itself, and no connection is looked for."""
    streams = len(by_name(world))
    asked = sum(world.said.values()) - sum(before.values())
    check(world.renewals <= 4 + 4 * streams, "it was looked {} times what is due", world.renewals)
    check(asked <= 2 * streams, "{} keys were asked for while nothing happened", asked)
    if not world.draining and not any(one.ended for one in world.publishers):
        check(world.looks == looks, "{} frames were looked at for nothing", world.looks - looks)


def check_gaps(world):
    """Who has died is told of, once on each stream, in time; of others nobody is told anything."""
    for publisher in world.publishers:
        told = [at for at, gap in world.gaps if gap.origin == publisher.origin]
        if publisher.ended is None or publisher.ended[0] == "said goodbye":
            check(not told, "of one that is there or has said goodbye a loss is told")
            continue
        world.mechanisms["asker told of a death"] += bool(told)
        patience = SILENCE if publisher.is_local else UNCOUNTED
        heard_at = publisher.heard_at or 0.0
        latest = max(publisher.ended[1], world.frozen_until) + patience + DEATH_TOLD
        is_right = all(heard_at + patience <= at <= latest for at in told)
        check(is_right, "a death is told at {}, of {}, heard at {}", told, publisher.ended, heard_at)
        # Not one with the same key that began later.
        left = [one for one in publisher.known_on if one in world.streams.by_key.values()]
        check(told or not left, "nobody is told of a death")
        most = world.said[STREAM] + world.said[PATTERN]
        check(len(told) <= most, "a death is told {} times", len(told))
