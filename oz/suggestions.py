"""Errors for unknown arguments and attributes, with a suggestion.

If a name is misspelled, its error suggests the most similar name. If the name is known from pyzmq or nats-py, its error
suggests the counterpart in oz.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from typing import Any

_OPTIONS = "options=oz.Options(high_water_mark=…)"
_TIMEOUT = "receive(timeout=…), in seconds"

_ARGUMENTS = {
    "address": "connect= or bind=",
    "callback": "handler=",
    "cb": "handler=",
    "endpoint": "connect= or bind=",
    "hwm": _OPTIONS,
    "linger": "oz.Publisher.close(timeout=…)",
    "name_server": "connect=",
    "nameserver": "connect=",
    "overflow": "subscribe(pattern, overflow=…)",
    "peers": "connect=",
    "queue": "group=",
    "reply": "oz.Node, which has requests and replies",
    "seeds": "connect=",
    "servers": "connect=",
    "timeout": _TIMEOUT,
    "topic": "subscribe(pattern)",
    "topics": "subscribe([pattern, …])",
    "url": "connect= or bind=",
}
"""Counterparts in oz for arguments of pyzmq and nats-py, and for names that users guess."""

OPTIONS_OF_SOCKETS = {
    "conflate": 'subscribe(pattern, overflow="conflate")',
    "hwm": _OPTIONS,
    "identity": "nothing: links have ids of their own",
    "linger": "oz.Publisher.close(timeout=…)",
    "rcvhwm": "subscribe(pattern, delivery=oz.Delivery(max_pending=…))",
    "rcvtimeo": _TIMEOUT,
    "routing_id": "nothing: links have ids of their own",
    "sndhwm": _OPTIONS,
    "sndtimeo": "options=oz.Options(send_timeout=…)",
}
"""Counterparts in oz for attributes of pyzmq's sockets that programs assign."""

_ATTRIBUTES = {
    **OPTIONS_OF_SOCKETS,
    "bind": "bind= of the constructor",
    "connect": "connect= of the constructor",
    "get": "oz.Subscriber.receive(timeout=…)",
    "getsockopt": "stats or endpoint",
    "messages": "a loop: for message in …",
    "next_msg": "oz.Subscriber.receive(timeout=…)",
    "poll": "receive(timeout=…), oz.Poller or fileno()",
    "pub": "oz.Publisher.publish(subject, payload)",
    "put": "oz.Publisher.publish(subject, payload)",
    "receive": "receive of a subscription, or oz.Subscriber",
    "recv": "oz.Subscriber.receive(), which returns a message with subject and payload",
    "recv_multipart": "oz.Subscriber.receive(), which returns a message with subject and payload",
    "recv_string": "oz.Subscriber.receive(), which returns a message with subject and payload",
    "request": "oz.Node, which has requests and replies",
    "send": "oz.Publisher.publish(subject, payload)",
    "send_multipart": "oz.Publisher.publish(subject, payload)",
    "send_string": "oz.Publisher.publish(subject, payload)",
    "set": "options=oz.Options(…)",
    "setsockopt": "options=oz.Options(…), or oz.Subscriber.subscribe(pattern) for zmq.SUBSCRIBE",
    "setsockopt_string": "options=oz.Options(…), or oz.Subscriber.subscribe(pattern) for zmq.SUBSCRIBE",
    "stop": "close()",
    "term": "close()",
    "unsubscribe": "unsubscribe of a subscription",
}
"""Counterparts in oz for methods of pyzmq and nats-py."""


def refuse_unknown(name: str, given: Iterable[str], function: Callable[..., Any], **parts: type) -> None:
    """Raise TypeError if a call has unknown arguments. The error contains a suggestion.

    Args:
        name: name of the function, as the program calls it.
        given: names of the unknown arguments.
        function: called function.
        parts: dataclass of options for each argument that takes one. The function also suggests fields of these
            dataclasses.
    """
    for text in given:
        code = function.__code__
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        known = [arg for arg in arguments if arg != "self"]
        for argument, part in parts.items():
            if text in {field.name for field in dataclasses.fields(part)}:
                raise TypeError(
                    f"{name} has no argument {text!r}; use {argument}=oz.{part.__name__}({text}=…)"
                )
        hint = _counterpart(text, known, _ARGUMENTS) or (f"; it has {', '.join(known)}" if known else "")
        raise TypeError(f"{name} has no argument {text!r}{hint}")


def refuse_positional(name: str, given: tuple[Any, ...], argument: str) -> None:
    """Raise TypeError if a call has too many positional arguments.

    Args:
        name: name of the function, as the program calls it.
        given: positional arguments that must be keyword arguments.
        argument: name of the only positional argument.
    """
    if given:
        raise TypeError(f"{name} takes only {argument} by position: write ARGUMENT={given[0]!r}")


def no_attribute(name: str, owner: type, wrong: str) -> AttributeError:
    """Return the error for an unknown attribute of a public class. The error contains a suggestion.

    Args:
        name: public name of the class.
        owner: class without the attribute.
        wrong: name of the unknown attribute.
    """
    known = [item for item in dir(owner) if not item.startswith("_")]
    return AttributeError(
        f"{name} has no attribute {wrong!r}{_counterpart(wrong, known, _ATTRIBUTES)}", name=wrong
    )


def _counterpart(wrong: str, known: Iterable[str], foreign: dict[str, str]) -> str:
    if wrong in foreign:
        return f"; use {foreign[wrong]}"
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
