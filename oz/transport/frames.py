"""The frames of one message, sent all or none, and as pyzmq has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import zmq

# A plain number: the enum's member costs 0.3 µs a message.
_MORE = int(zmq.SNDMORE)


def as_frame_objects(frames: list[bytes]) -> list[zmq.Frame]:
    """Make pyzmq's objects of frames, each of which knows whether more follow."""
    objects = [zmq.Frame(frame) for frame in frames]
    for frame in objects[:-1]:
        frame.more = True
    return objects


def copy_into(buffer: Any, frame: bytes, nbytes: int) -> int:
    """Copy a frame into a buffer, as `zmq.Socket.recv_into` does: what does not fit is cut off.

    Returns:
        The size of the whole frame in bytes.
    """
    view = memoryview(buffer).cast("B")
    room = min(len(frame), nbytes or len(view), len(view))
    view[:room] = frame[:room]
    return len(frame)


def send_frames(
    send: Callable[..., Any], socket: Any, frames: Sequence[Any], flags: int, *, copy: bool = True
) -> None:
    """Send the frames of one message, all of them or none.

    A signal handler that raises comes after a frame has gone, or was found to have no room: what is missing
    then is sent before the exception goes on, or the next message would join this one.

    Args:
        send: of the socket's `Backend`.
        socket: the socket.
        frames: at least one.
        flags: 0 or `zmq.NOBLOCK`; only the first frame can find no room.
        copy: False to leave where they are those that are large enough for that.

    Raises:
        zmq.Again: there is no room.
    """
    last = len(frames) - 1
    at = -1
    try:
        while at < last:
            # First: where one raises, that frame has gone.
            at += 1
            send(socket, frames[at], flags | _MORE if at < last else flags, copy)
    except zmq.ZMQError:
        raise
    except BaseException:
        while -1 < at < last:
            at += 1
            try:
                send(socket, frames[at], flags | (_MORE if at < last else 0))
            except zmq.ZMQError:
                # There was no room, so that none has gone: that must not take the place of what was raised.
                break
            except BaseException:
                # Another one: this frame has gone, too.
                continue
        raise
