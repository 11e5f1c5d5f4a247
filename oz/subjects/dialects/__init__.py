"""Dialects of subjects and patterns. Each dialect has a name and a module in this package."""

from __future__ import annotations

from oz.errors import ConfigurationError
from oz.subjects.dialects.amqp import Amqp
from oz.subjects.dialects.base import CompiledPattern, Dialect, Stem, Token, Wild
from oz.subjects.dialects.kubemq import Kubemq
from oz.subjects.dialects.mqtt import Mqtt
from oz.subjects.dialects.nats import Nats
from oz.subjects.dialects.raims import RaimsGlob, RaimsRv, RaimsSub
from oz.subjects.dialects.redis import Redis
from oz.subjects.dialects.regular import Regular
from oz.subjects.dialects.rv import Rv
from oz.subjects.dialects.zmq import Zmq

_ALL: tuple[Dialect, ...] = (
    Nats(),
    Rv(),
    Kubemq(),
    Redis(),
    RaimsSub(),
    RaimsRv(),
    RaimsGlob(),
    Regular(),
    Mqtt(),
    Amqp(),
    Zmq(),
)

BY_NAME: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
DIALECTS: tuple[str, ...] = tuple(BY_NAME)
"""Names of all dialects. The first, "nats", is the default."""


def find(name: str) -> Dialect:
    """Return a dialect by name.

    Raises:
        ConfigurationError: no dialect has this name.
    """
    try:
        return BY_NAME[name]
    except (KeyError, TypeError):
        rule = f"no dialect has this name; the dialects are {', '.join(DIALECTS)}"
        raise ConfigurationError("dialect", name, "argument", rule) from None


__all__ = ["BY_NAME", "DIALECTS", "CompiledPattern", "Dialect", "Stem", "Token", "Wild", "find"]
