"""What publishers have counted of connections is what these hold: limits go by that."""

from __future__ import annotations

from collections import Counter

from oz.subjects.pattern import weight_of
from oz.wire.keys import OWN, STREAM
from simulation.ledger import check

COUNTED = "keys", "streams", "plain", "plain_bytes", "key_bytes", "own_streams", "patterns"


def check_accounts(publisher):
    """Add up for each connection what it holds, and compare."""
    queue = publisher.queue
    found = {account: Counter() for account in queue.accounts.values()}
    _add_keys(found, queue.holders)
    _add_streams(found, publisher.router.streams.values())
    for account, counts in found.items():
        said = {name: getattr(account, name) for name in COUNTED}
        check(
            said == {name: counts[name] for name in COUNTED}, "{}: {} is counted as {}, and is {}",
            publisher.name, account.name, said, dict(counts),
        )  # fmt: skip
        limits = publisher.limits
        check(
            account.streams <= limits.streams
            and account.plain <= limits.plain_subscriptions
            and account.patterns <= limits.patterns,
            "{}: {} has more than it may", publisher.name, account.name,
        )  # fmt: skip
        weight = account.pattern_weight
        check(weight == counts["weight"], "{}: patterns of {}, not {}", publisher.name, counts, weight)
        check(not account.waiting_bytes, "{}: keys wait of {}", publisher.name, account.name)
        alive = account.keys == 0 or publisher.is_there(account.peer)
        check(alive, "{}: {} has ended and holds {} keys", publisher.name, account.name, account.keys)
    waiting = queue.turns.size, queue.turns.keys()
    check(not any(waiting), "{}: keys wait to be looked at: {}", publisher.name, waiting)
    plain = sum(counts["plain_bytes"] for counts in found.values())
    check(
        queue.plain_bytes == plain, "{}: plain keys of {}, not {}", publisher.name, plain, queue.plain_bytes
    )


def _add_keys(found, holders):
    for key in holders.held():
        for account in holders.accounts(key):
            counts, is_plain = found[account], not key.startswith(OWN)
            counts["keys"] += 1
            counts["streams"] += key.startswith(STREAM)
            counts["plain"] += is_plain
            counts["plain_bytes" if is_plain else "key_bytes"] += len(key)


def _add_streams(found, streams):
    for stream in streams:
        if stream.is_shared:
            _add(found, stream.account, "patterns", 1, stream.patterns)
            continue
        _add(found, stream.account, "own_streams", 1, ())
        for chunk in (*stream.chunks.values(), *stream.ending.values()):
            _add(found, chunk.account, "patterns", len(chunk.patterns), chunk.patterns)


def _add(found, account, name, count, patterns):
    if account in found:
        found[account][name] += count
        found[account]["weight"] += sum(map(weight_of, patterns))
