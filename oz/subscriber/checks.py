"""Checks of the arguments of subscribers and subscriptions."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from oz.errors import ConfigurationError, SubjectWarning
from oz.options import OVERFLOWS, Delivery, Options
from oz.subjects import dialects
from oz.subjects.advice import foreign_wildcard, foreign_wildcard_text, misspelled_dialect
from oz.subjects.pattern import Pattern, PatternLike, compile_with_default
from oz.transport.warning_level import callers_level
from oz.wire.links import StreamOptions

MAX_GROUP = 255
"""Maximum number of bytes in the name of a queue group."""
MAX_PENDING = 2**32 - 1
_DEFAULT_PENDING = Delivery().max_pending
FILTERINGS = ("auto", "publisher", "prefix")


def check_subscriber(dialect: Any, filtering: Any, on_gap: Any, options: Any, links: Any) -> None:
    """Check the arguments of a subscriber.

    Raises:
        ConfigurationError: an argument has a wrong value.
        TypeError: `on_gap` cannot be called, or `options` is not an `Options` object.
    """
    dialects.find(dialect)
    if filtering not in FILTERINGS:
        raise _wrong("filtering", filtering, f"it is one of {', '.join(FILTERINGS)}")
    if on_gap is not None and not callable(on_gap):
        raise TypeError(f"on_gap is called with each gap; {on_gap!r} cannot be called")
    if not isinstance(options, Options):
        raise TypeError(f"options are oz.Options, not {type(options).__name__}")
    if options.delimiter is not None and filtering == "publisher":
        raise _wrong("delimiter", options.delimiter, 'links need none: use filtering="auto" or "prefix"')
    if links is not None and filtering == "prefix":
        raise _wrong("links", links, 'filtering="prefix" uses no links; leave links= out')


def compile_all(patterns: Any, dialect: str | None, default: str) -> list[Pattern]:
    """Return the compiled patterns of a subscription.

    Raises:
        PatternError, TypeError: a pattern is invalid; see `oz.compile`.
        ConfigurationError: no dialect has this name, or there is no pattern.
    """
    is_list = isinstance(patterns, (list, tuple, set, frozenset))
    found: list[PatternLike] = list(patterns) if is_list else [patterns]
    compiled = list(
        dict.fromkeys(
            # Bytes are a plain prefix whatever the dialect is, as for a SUB of ZeroMQ.
            compile_asked(item, "zmq" if isinstance(item, bytes) else dialect, default)
            for item in found
        )
    )
    if not compiled:
        raise _wrong("pattern", patterns, "a subscription needs at least one pattern")
    return compiled


def stream_options(
    group: Any, overflow: Any, ack: Any, last_value: Any, delivery: Any, filtering: str
) -> StreamOptions:
    """Check the delivery options of a subscription, and return them in the form that is sent to publishers.

    Raises:
        ConfigurationError: an option has a wrong value, or `filtering` is "prefix" and an option needs a link.
        TypeError: `delivery` is not a `Delivery` object.
    """
    if not isinstance(delivery, Delivery):
        raise TypeError(f"delivery is oz.Delivery, not {type(delivery).__name__}")
    encoded = group.encode("utf-8", "ignore") if isinstance(group, str) else b""
    if group is not None and not (0 < len(encoded) <= MAX_GROUP and encoded.decode() == group):
        raise _wrong("group", group, f"a queue group has a name of 1 to {MAX_GROUP} bytes of UTF-8")
    if overflow not in (None, *OVERFLOWS):
        raise _wrong("overflow", overflow, f"it is None or one of {', '.join(OVERFLOWS)}")
    if not isinstance(last_value, bool):
        raise _wrong("last_value", last_value, "it is True or False")
    if ack not in ("received", "handled"):
        raise _wrong("ack", ack, 'it is "received" or "handled"')
    if group is None and delivery.policy != "round_robin":
        raise _wrong("policy", delivery.policy, "a policy picks the member of a group: give group= too")
    if delivery.redeliver and (group is None or ack != "handled"):
        raise _wrong("redeliver", True, 'it needs group= and ack="handled"')
    if filtering == "prefix":
        given = {"group": group, "overflow": overflow, "last_value": last_value or None}
        given["ack"] = None if ack == "received" else ack
        for name, value in given.items():
            if value is not None:
                raise _wrong(name, value, 'it needs a link: use filtering="auto" or "publisher"')
    if delivery.max_pending > MAX_PENDING:
        raise _wrong("max_pending", delivery.max_pending, f"it is at most {MAX_PENDING:,}")
    return StreamOptions(
        group,
        delivery.policy,
        overflow,
        # 0 means that the publisher's high-water mark is the limit.
        0 if delivery.max_pending == _DEFAULT_PENDING else delivery.max_pending,
        ack == "handled",
        delivery.redeliver,
        delivery.prefetch or 0,
    )


def check_subscription(handler: Any, max_messages: Any, *, class_name: str) -> None:
    """Check the handler and the message limit of a subscription.

    Args:
        handler: handler of the subscription, or None.
        max_messages: the subscription ends after this number of messages; None for no limit.
        class_name: class name of the subscriber or node. Only classes of `oz.asyncio` await coroutines.

    Raises:
        ConfigurationError: `max_messages` is not a positive whole number.
        TypeError: the handler cannot be called, or is a coroutine function although the class does not await.
    """
    if handler is not None and not callable(handler):
        raise TypeError(f"a handler is called with each message; {handler!r} cannot be called")
    is_coroutine = any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))
    if is_coroutine and "asyncio" not in class_name:
        awaiting = class_name.replace("oz.", "oz.asyncio.")
        raise TypeError(f"{handler!r} is a coroutine function; use {awaiting}, which awaits it")
    is_number = isinstance(max_messages, int) and not isinstance(max_messages, bool)
    if max_messages is not None and not (is_number and max_messages > 0):
        raise _wrong("max_messages", max_messages, "it is a number above 0, or None")


def _wrong(name: str, value: Any, rule: str) -> ConfigurationError:
    return ConfigurationError(name, value, "argument", rule)


def compile_asked(pattern: Any, dialect: str | None, default: str) -> Pattern:
    """Compile a pattern of `subscribe`. Warn about a misspelled dialect, and about a wildcard of another dialect.

    Args:
        pattern: pattern that the program passed to `subscribe`.
        dialect: dialect that the program passed to `subscribe`, or None.
        default: default dialect of the socket or node; see `compile_with_default`.

    Raises:
        PatternError: the dialect does not allow the pattern.
        TypeError: `pattern` is not a pattern.
    """
    compiled = compile_with_default(pattern, dialect, default)
    is_plain_text = isinstance(pattern, str) and pattern == compiled.text
    if is_plain_text and dialect is None and default != "zmq" and (advice := misspelled_dialect(pattern)):
        warnings.warn(advice, SubjectWarning, stacklevel=callers_level())
    found = foreign_wildcard(compiled) if is_plain_text else None
    if found is not None:
        wildcard, owners = found
        text = (
            f"pattern {pattern!r}: {foreign_wildcard_text(wildcard, owners)}: give dialect={owners[0]!r}, or "
            f"oz.compile({pattern!r}) if you mean the text"
        )
        warnings.warn(text, SubjectWarning, stacklevel=callers_level())
    return compiled
