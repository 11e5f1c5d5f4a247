"""Files of settings in TOML, and what nodes and forwarders tell each other in text."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import click

from oz.cli.forwarder import read_legs
from oz.configuration.resolution import survey
from oz.errors import ConfigurationError, PatternError, ProtocolError
from oz.journal.records import unpack_headers
from oz.protocol.bridge import spanning_tree
from oz.protocol.node import presence
from oz.protocol.node.reach import Reach
from oz.services.leg import patterns_of
from oz.transport.node.opening import node_settings
from oz.wire.announcement import Announcement
from oz.wire.codec import MsgpackCodec, NodeCodec


def read_settings(data: bytes) -> None:
    """Read a file of settings, and say what is wrong with it."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        with patch.dict(os.environ, {"OZ_CONFIG": file.name}):
            found = survey()
    assert all(str(fault) for fault in found.faults)


def read_forwarder(data: bytes) -> None:
    """Read the file of a forwarder, and check its legs as it does."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file, suppress(click.BadParameter):
        file.write(data)
        file.flush()
        for leg in read_legs(Path(file.name)):
            with suppress(ConfigurationError, PatternError, TypeError, ValueError), patch.dict(os.environ):
                os.environ["OZ_CONFIG"] = os.devnull
                patterns_of(leg.pop("allow", ()))
                node_settings(**leg)


def read_told(data: bytes) -> None:
    """Read what a node is told in tokens of subjects and in payloads, and the headers of a record."""
    token = data.decode("ascii", "replace")
    with suppress(ProtocolError):
        assert spanning_tree.to_text(spanning_tree.from_text(token))
    with suppress(ProtocolError):
        assert _reach().refusal(presence.from_text(token)) != ""
    unpack_headers(data)
    codec = NodeCodec(MsgpackCodec())
    for mark in (b"oz nodes", b"oz failed", b"oz wants"):
        # Text of a node that is none is a malformed payload, whatever the error.
        with suppress(ProtocolError, UnicodeDecodeError):
            codec.decode(b"\xc1\x00" + mark + b"\x00\xc1" + data)


def _reach() -> Reach:
    own = Announcement(bytes(16), "n", "b", "h", b"", 1, ("tcp://127.0.0.1:1",), None, "", 0)
    return Reach(own, ("tcp://ns:1",), "ipc:///run/oz/")
