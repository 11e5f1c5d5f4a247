"""Checks of the arguments of drop-in sockets."""

from __future__ import annotations

from typing import Any

import zmq

from oz.errors import ConfigurationError
from oz.subjects import dialects


def check_arguments(name: str, context: Any, socket_type: int, allowed: int, dialect: str) -> None:
    """Check the arguments of a drop-in socket.

    Args:
        name: public name of the class.
        context: pyzmq context, or None.
        socket_type: socket type from the program.
        allowed: socket type that the class supports.
        dialect: dialect name from the program.

    Raises:
        ConfigurationError: the class does not support the socket type, or no dialect has this name.
        TypeError: the context is gevent's.
    """
    if socket_type != allowed:
        wanted = zmq.SocketType(allowed).name
        raise ConfigurationError(
            "socket_type", socket_type, name, f"must be zmq.{wanted}; other types need zmq.Socket"
        )
    dialects.find(dialect)
    if any(base.__module__.startswith("zmq.green") for base in type(context).__mro__):
        raise TypeError(
            f"{name} waits in C and would block every greenlet of a zmq.green context; "
            "give a zmq.Context and use the socket in gevent's threadpool"
        )
