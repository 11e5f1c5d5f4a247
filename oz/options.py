"""Options of publishers, subscribers and nodes. All are frozen; `dataclasses.replace` changes a copy."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

from oz.errors import ConfigurationError
from oz.suggestions import refuse_unknown

_MIB = 1 << 20

POLICIES = ("round_robin", "sticky", "failover")
"""Ways to pick the member of a queue group that receives a message."""
OVERFLOWS = ("drop_newest", "drop_oldest", "conflate")
"""Policies for a subscriber that is too slow."""


class _Named:
    """Base of the options: a misspelled name gets a suggestion."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        known = {one.name for one in fields(cls)}  # type: ignore[arg-type]
        refuse_unknown(f"oz.{cls.__name__}", (one for one in given if one not in known), cls.__init__)
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True)
class Limits(_Named):
    """Limits of a socket, a node or a service. They bound what a peer can cost.

    Attributes:
        patterns: subscriptions of one link at a publisher.
        pattern_time: seconds for one match. A pattern that takes longer three times is suspended.
        subscription_bytes: bytes of the subscriptions of one plain subscriber.
        message_bytes: bytes of the payload of one message. `publish` refuses a larger one, and a peer that
            sends a larger one is disconnected.
        peers: links of one publisher.
        handshake: seconds within which a peer ends ZeroMQ's handshake.
    """

    patterns: int = 100_000
    pattern_time: float = 0.001
    subscription_bytes: int = 8 * _MIB
    message_bytes: int = 64 * _MIB
    peers: int = 65_536
    handshake: float = 10.0

    def __post_init__(self) -> None:
        """Check that every limit is positive."""
        _check_positive(self)


@dataclass(frozen=True, kw_only=True)
class Options(_Named):
    """Options of a publisher or a subscriber that few programs change.

    Attributes:
        high_water_mark: messages that wait for one subscriber at most, without `max_pending`; 0 for no limit
            but `pending_bytes`.
        pending_bytes: bytes that wait for one subscriber at the publisher at most.
        resume_bytes: bytes that a publisher keeps for a subscriber to resume without loss.
        resume_seconds: seconds that a publisher keeps the link of a subscriber without connection.
        send_timeout: seconds that `publish` waits for a full subscriber, with `on_full="block"`.
        batch: messages of a batch at most.
        batch_delay: seconds that a message waits for a batch at most.
        delimiter: separator between the tokens of a subject, in place of the dialect's.
        dedupe: whether a subscriber drops messages whose id it has seen.
        multicast: options of `epgm://` and `pgm://` endpoints.
        limits: what a peer can cost.
    """

    high_water_mark: int = 10_000
    pending_bytes: int = 64 * _MIB
    resume_bytes: int = 8 * _MIB
    resume_seconds: float = 30.0
    send_timeout: float = 10.0
    batch: int = 512
    batch_delay: float = 0.0005
    delimiter: str | None = None
    dedupe: bool = False
    multicast: Any = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Check that no number is negative, and that 0 has a meaning."""
        may_be_zero = ("high_water_mark", "batch_delay")
        _check_positive(self, but=may_be_zero)
        for name in may_be_zero:
            value = getattr(self, name)
            if type(value) not in (int, float) or not value >= 0:
                raise _not_positive(name, value, "a number, 0 or more")


@dataclass(frozen=True, kw_only=True)
class Delivery(_Named):
    """Delivery options of a subscription.

    Attributes:
        policy: how a queue group picks the member: "round_robin", "sticky" (by the key of the message, else
            by its subject) or "failover" (the member that joined first).
        max_pending: messages that wait for the subscription at most.
        prefetch: unacknowledged messages from which a group prefers other members; None for 64 with
            `ack="handled"` and 4,096 without.
        redeliver: whether the messages that a lost member has not acknowledged go to other members.
        inline: whether the handler runs in the thread or loop that reads. It must be fast.
    """

    policy: str = "round_robin"
    max_pending: int = 65_536
    prefetch: int | None = None
    redeliver: bool = False
    inline: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if self.policy not in POLICIES:
            raise ConfigurationError(
                "policy", self.policy, "argument", f"a policy is one of {', '.join(POLICIES)}"
            )
        _check_positive(self)


def _check_positive(options: Any, but: tuple[str, ...] = ()) -> None:
    for one in fields(options):
        value = getattr(options, one.name)
        if type(value) in (int, float) and one.name not in but and not value > 0:
            raise _not_positive(one.name, value, "above 0")


def _not_positive(name: str, value: Any, what: str) -> ConfigurationError:
    return ConfigurationError(name, value, "argument", f"it is {what}")
