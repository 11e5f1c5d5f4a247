"""Laws of what connections may have: as much as docs/limits.md says, and no more; see `promises`."""

from __future__ import annotations

from dataclasses import replace

from oz.protocol.publisher import router as routing
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.interest_queue import InterestQueue
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS
from oz.wire.keys import ID_SIZE, Declaration, Declared, DeliveryOptions, stream_key
from simulation.changing import changed
from simulation.ledger import check

NOW = 100.0


def check_bounds(random):
    """Have several connections ask for more and more, until they have all that one limit allows."""
    most, is_alone = random.randrange(1, 7), random.random() < 0.5
    for name in random.sample(sorted(LIMITS), 3):
        LIMITS[name](name, most, is_alone=is_alone)
    _check_patterns(random, most)
    _check_reasons(most)


def _queue(**limits):
    router = Router(bytes(16), PublisherStats(), limits=replace(DEFAULT_LIMITS, **limits))
    return InterestQueue(router, router.acceptance._limits, lambda _: True), router


def _name(number):
    return (b"n%d" % number).ljust(ID_SIZE)


def _check_granted(name, most, size, keys, *, is_alone):
    """So many keys are granted as the limit allows, and the next one is not."""
    queue, router = _queue(**{name: most * size})
    for number, key in enumerate(keys[: most + 2]):
        peer = Peer(1, 1) if is_alone else Peer(number, number)
        granted = queue.take(b"\1" + key, peer, NOW)
        may = number < most
        check(bool(granted.wanted) == may, "{} of {} allows {}: {}", name, most * size, number + 1, granted)
        refused = router.stats.refused
        check(
            refused == max(0, number + 1 - most), "{} are refused, and {} counted", number + 1 - most, refused
        )


def _plain(name, most, *, is_alone):
    size = 3 if "bytes" in name else 1
    keys = [b"%03d" % number for number in range(10)]
    _check_granted(name, most, size, keys, is_alone=is_alone or not name.startswith("all"))


def _waiting(name, most, *, is_alone):
    keys = [stream_key(_name(number)) for number in range(10)]
    size = len(keys[0])
    _check_granted(name, most, size, keys, is_alone=is_alone or not name.startswith("all"))


def _plain_size(name, most, *, is_alone):
    for size in (most, most + 1):
        queue, _ = _queue(**{name: most})
        granted = queue.take(b"\1" + b"x" * size, Peer(1, 1), NOW)
        check(bool(granted.wanted) == (size <= most), "{} of {} allows {}", name, most, size)


def _streams(name, most, *, is_alone):
    _, router = _queue(**{name: most})
    accounts = [Account(Peer(number, number)) for number in range(most + 2)]
    for number, account in enumerate(accounts):
        account = accounts[0] if is_alone or name == "streams" else account
        _declare(router, number, account, (b"a",))
    check(len(router.streams) == most, "{} allows {} streams: {}", name, most, len(router.streams))


def _check_patterns(random, most):
    """Declarations are taken on while patterns fit in, of one connection or all, and others refused."""
    for name in ("patterns", "all_patterns"):
        _, router = _queue(**{name: most})
        accounts = [Account(Peer(number, number)) for number in range(2 if name == "all_patterns" else 1)]
        has = 0
        for number in range(8):
            account, count = random.choice(accounts), random.randrange(1, 4)
            texts = [b"p%d.%d" % (number, one) for one in range(count)]
            _declare(router, number, account, texts)
            stream = router.streams[stream_key(_name(number))]
            may = has + count <= most
            has += count * may
            check(bool(stream.refused) != may, "{} of {} allows {} and {}: {}", name, most, has, count, may)


def _check_reasons(most):
    """Reasons for which declarations are refused are kept of as many as a stream may have."""
    _, router = _queue()
    _declare(router, 0, Account(Peer(1, 1)), (b"a",))
    with changed((routing, "MAX_CHUNKS", most)):
        for number in range(2, most + 4):
            router.refuse(Declaration(_name(0), number, patterns=(Declared(1, b"b"),)).encode(), "no")
    (stream,) = router.streams.values()
    check(len(stream.refused) == most, "{} reasons are kept of {}", len(stream.refused), most)


def _declare(router, number, account, texts, delivery=None, chunk=1):
    name = _name(number)
    said = Declaration(
        name, chunk, delivery or DeliveryOptions(), patterns=tuple(Declared(1, one) for one in texts)
    )
    for key in (stream_key(name), said.encode()):
        router.learn(b"\1" + key, NOW, account)


LIMITS = {
    "plain_subscriptions": _plain, "plain_size": _plain_size, "plain_bytes": _plain,
    "all_plain_bytes": _plain, "waiting_keys": _waiting, "all_waiting_keys": _waiting,
    "streams": _streams, "all_streams": _streams, "key_bytes": _waiting,
}  # fmt: skip
"""How each limit is tried."""
