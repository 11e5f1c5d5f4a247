"""Path of one message through a bus, for `oz trace`.

Theory of operation
-------------------
The tracing node sends a *question* to each peer: a direct message with an id and the subject of the traced message. The
peer answers with a *hop*: a dict with its matching subscriptions and, if its permissions deny the publication, the
reason. The hop of the tracing node lists the peers that receive the message, and the member that each group would pick.

A forwarder has one node on each bus, called its *leg*. The answer of a forwarder contains a hop for each other leg. The
forwarder sends the question to the peers of these legs, and sends their answers to the tracing node. The entry `asked`
of a hop lists the ids of these peers, so that the tracing node knows which answers are missing. Two forwarders may ask
the same peer. Therefore an answer is identified by the asking node and the peer.

A message is *marked* if its header `oz-trace` has the id of a question. For `SECONDS` after its answer, a peer reports
marked messages to the node that asked. The peer sends a report when a marked message arrives, when a handler of the
message ends, and when the message is in a journal. A peer reports only messages with the id of a question that it has
answered, and sends at most `MAX_REPORTS` reports for each question. Therefore a publisher cannot cause a flood of
reports.

With a file of permissions, the key of the asking node needs `request` for the subject `_OZ.TRACE`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgpack

from oz.errors import ClosedError
from oz.node import roster
from oz.node.handlers import InlineRunner, Runner
from oz.node.sampling import request_denial, unpack
from oz.publisher.session import Stream
from oz.security.access import denial_of
from oz.security.denials import Denial
from oz.subscriber.link import Link
from oz.subscriber.message import Message
from oz.subscriber.queue import Inbox
from oz.subscriber.subscriptions import Subscription, Subscriptions
from oz.transport.steps import Steps
from oz.wire.extras import FORWARDER_ID

if TYPE_CHECKING:
    from oz.node.engine import Engine

TRACE = "_OZ.TRACE"
"""Subject of questions, answers and reports. A file of permissions can allow requests for this subject."""
HEADER = "oz-trace"
"""Header that marks a message. Its value is the id of the question."""
SECONDS = 60.0
"""Seconds for which a peer reports marked messages after its answer."""
MAX_REPORTS = 100
"""Maximum number of reports that one peer sends for one question."""
MAX_SUBSCRIPTIONS = 100
"""Maximum number of subscriptions in a hop, and maximum number of recipients in a hop."""
_MAX_OPEN = 1_000
_MAX_SIZE = 1 << 20  # Maximum bytes of a direct message.
_MAX_WAITING = 8 << 20  # Maximum bytes of the direct messages that wait for `turn`.
_OVERHEAD = 1 << 10  # Estimated bytes of a waiting message in addition to its payload.
_MAX_TEXT = 1_000  # Maximum characters of a text.
_ID = 16  # Bytes of an id.
_QUESTION, _ANSWER, _REPORT = range(3)

Hop = dict[str, Any]


class Trace:
    """Question of this node about one subject, with its answers and reports.

    Attributes:
        id: id of the question, and value of the header `oz-trace` in the marked message.
        hops: hop of this node, followed by the hops of the peers that have answered.
        missing: a pair for each missing answer: the id of the asking node, and the id of the peer.
        reports: reports about marked messages.
    """

    def __init__(self, own: Hop) -> None:
        self.id = os.urandom(_ID)
        self.hops = [own]
        self.missing = {(own["node"], peer) for peer in own["asked"]}
        self.reports: list[dict[str, Any]] = []

    @property
    def forwarders(self) -> set[str]:
        """Ids of the forwarders that have answered. A forwarder also sends the answers of peers on other buses."""
        return {hop["node"] for hop in self.hops if hop["legs"]}

    def add(self, hop: Hop) -> None:
        """Add the answer of a peer. A second answer to the same asking node is ignored."""
        pair = hop["asker"], hop["node"]
        if pair in self.missing:
            self.missing.discard(pair)
            self.hops.append(hop)
            answered = {(known["asker"], known["node"]) for known in self.hops}
            for leg in hop["legs"]:
                self.missing.update({(leg["node"], peer) for peer in leg["asked"]} - answered)

    def has_arrived(self) -> bool:
        """Return whether all expected reports have arrived: from each recipient, and its handlers and recorders."""
        answered = {hop["node"]: hop for hop in self.hops}
        received = {(report["node"], report["group"]) for report in self.reports if "received" in report}
        for hop in [part for known in self.hops for part in (known, *known["legs"])]:
            groups: dict[str, bool] = {}
            for recipient in hop["recipients"]:
                node, group = recipient["node"], recipient["group"]
                answer = answered.get(node)
                if answer is None or answer["denied"] or answer["untraced"]:
                    continue
                if group is not None:
                    groups[group] = groups.get(group, False) or (node, group) in received
                elif (node, None) not in received:
                    return False
            if not all(groups.values()):
                return False
        awaited: int = sum(
            report["handlers"] + report["journals"] for report in self.reports if "received" in report
        )
        return awaited <= sum("received" not in report for report in self.reports)


class _Asked:
    """Question that this node has answered or passed on.

    Attributes:
        peer: id of the peer that sent the question.
        until: time at which the question is forgotten.
        back: `Traces` object that received the question: of this node, or of another leg of the forwarder. It sends
            answers and reports to the peer.
        left: number of further reports that this node may send.
    """

    __slots__ = ("back", "left", "peer", "until")

    def __init__(self, peer: bytes, until: float, back: Traces) -> None:
        self.peer, self.until, self.back, self.left = peer, until, back, MAX_REPORTS


class Traces:
    """Questions of one node to its peers, and answers of the node to questions of its peers.

    Attributes:
        pass_on: function of a forwarder that returns a hop for each other bus; see `BridgeEngine` in
            `oz.services.bridge`.
        journals: dict from the inbox of a recorder's subscription to the directory of the journal.
    """

    def __init__(self, node: Engine) -> None:
        self._node = node
        self._arrived: list[tuple[bytes, str | None, str, bytes]] = []
        self._arrived_bytes = 0
        self._outgoing: deque[tuple[bytes, bytes]] = deque(maxlen=_MAX_OPEN)
        self._answered: dict[bytes, _Asked] = {}
        self._passed: dict[bytes, _Asked] = {}
        self._open: dict[bytes, Trace] = {}
        self.journals: dict[Inbox, str] = {}
        self.pass_on: Callable[[Traces, bytes, bytes, bytes, bytes], list[Hop]] = lambda *_: []

    # Methods of the asking node.

    def ask(self, subject: str | bytes, timeout: float) -> Steps[Trace]:
        """Ask all peers about a subject, and wait for their answers.

        Args:
            subject: subject of the message.
            timeout: seconds to wait for answers.

        Raises:
            SubjectError, ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        node = self._node
        raw = node.publisher.check_subject(subject)
        trace = Trace(self._own_hop(raw, ()))
        self._open[trace.id] = trace
        try:
            unasked = self._send_questions(trace.id, raw, b"", trace.hops[0])
            trace.missing -= {(trace.hops[0]["node"], peer) for peer in unasked}
            end = node.clock() + timeout
            while trace.missing and node.clock() < end:
                yield end
                node.check_usable()
        except BaseException:
            self.close(trace)
            raise
        return trace

    def wait(self, trace: Trace, timeout: float) -> Steps[None]:
        """Wait for the reports about a marked message. The caller has published this message.

        Args:
            trace: result of `ask`.
            timeout: seconds to wait for reports.

        Raises:
            ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        end = self._node.clock() + timeout
        while not trace.has_arrived() and self._node.clock() < end:
            yield end
            self._node.check_usable()

    def close(self, trace: Trace) -> None:
        """End a trace. Later answers and reports are ignored."""
        self._open.pop(trace.id, None)

    # Methods of the asking node and of forwarders.

    def _own_hop(self, raw: bytes, excluded: Collection[bytes]) -> Hop:
        """Return a hop of this node that lists the peers to ask, and the peers that receive the subject.

        Args:
            raw: subject as bytes.
            excluded: ids of forwarders that the hop leaves out.
        """
        node = self._node
        with node.lock:
            asked = [
                peer.hex()
                for peer, known in node.roster.by_id.items()
                if known.state == roster.UP and peer != node.id and peer[-FORWARDER_ID:] not in excluded
            ]
        return {**self._empty_hop(), "asked": asked, "recipients": self._recipients(raw, excluded)}

    def _empty_hop(self) -> Hop:
        node = self._node
        return {
            "node": node.id.hex(), "name": node.name, "kind": node.kind, "bus": node.bus, "asker": "",
            "untraced": "", "denied": "", "rule": None, "subscriptions": [], "legs": [], "asked": [], "recipients": [],
        }  # fmt: skip

    def _recipients(self, raw: bytes, excluded: Collection[bytes]) -> list[dict[str, Any]]:
        """Return a dict for each stream that receives a subject. `picked` is true for the member that a group picks."""
        node = self._node
        route = node.publisher.find_route(raw.decode("utf-8", "surrogateescape"), raw)
        if route is None:
            return []
        with node.publisher.lock:
            streams: list[tuple[Stream, str | None, bool]] = [(stream, None, False) for stream in route.plain]
            for group, members in route.groups:
                picked = group.choose(members, raw, node.clock())
                streams += [(member, group.name, member is picked) for member in members]
            return [
                {
                    "node": stream.session.member.hex(), "group": group, "picked": is_picked,
                    "state": stream.session.state, "pending": stream.pending,
                }
                for stream, group, is_picked in streams[:MAX_SUBSCRIPTIONS]
                if stream.session.member[-FORWARDER_ID:] not in excluded
            ]  # fmt: skip

    def _send_questions(self, trace_id: bytes, raw: bytes, via: bytes, hop: Hop) -> set[str]:
        """Ask the peers of a hop; return the ids of the peers to which the question could not be sent."""
        question = msgpack.packb([trace_id, _QUESTION, raw, via])
        return {
            peer
            for peer in hop["asked"]
            if self._node.publisher.direct(bytes.fromhex(peer), TRACE, question) is not True
        }

    def pass_question(
        self, trace_id: bytes, raw: bytes, via: bytes, excluded: Collection[bytes], back: Traces, peer: bytes
    ) -> Hop:
        """Send a question from another bus to the peers of this leg; return the hop of the leg.

        Args:
            trace_id: id of the question.
            raw: subject as bytes.
            via: concatenated ids of the forwarders that have passed the question on. The last id belongs to this
                forwarder.
            excluded: ids of forwarders that receive no message from this forwarder.
            back: `Traces` object of the leg at which the question arrived.
            peer: id of the peer that sent the question to that leg.
        """
        hop = self._own_hop(raw, excluded)
        _bound(self._passed)
        self._passed[trace_id] = _Asked(peer, self._node.clock() + SECONDS, back)
        unasked = self._send_questions(trace_id, raw, via, hop)
        hop["asked"] = [peer for peer in hop["asked"] if peer not in unasked]
        return hop

    def has_passed(self, trace_id: bytes) -> bool:
        """Return whether this leg has sent a question to its peers."""
        return trace_id in self._passed

    # Methods of the answering node.

    def on_direct(self, link: Link, payload: bytes) -> None:
        """Queue a direct message, which `turn` handles. Drop it if too many bytes wait. The subscriber has its lock."""
        size = self._arrived_bytes + len(payload) + _OVERHEAD
        if link.origin is None or size > _MAX_WAITING:
            return
        self._arrived_bytes = size
        key = self._node.subscriber.key_of(link)
        self._arrived.append((link.origin, key, request_denial(self._node, link, TRACE), payload))

    def _on_marked(self, message: Message) -> None:
        """Report that a marked message has arrived, and measure the calls of its handlers."""
        asked = self._may_report(message)
        if asked is None or message.route is None:
            return
        inboxes = [inbox for inbox in message.route.inboxes if inbox.is_active and inbox.entries]
        runners = [inbox for inbox in inboxes if isinstance(inbox.handler, (Runner, InlineRunner))]
        groups = {inbox.entries[0].options.group for inbox in inboxes}
        self._report(asked, message, {
            "group": next(iter(groups), None), "handlers": len(runners), "received": message.time_ns,
            "journals": sum(inbox in self.journals for inbox in inboxes),
            "patterns": [pattern for inbox in inboxes for pattern in _patterns(inbox)][:MAX_SUBSCRIPTIONS],
        })  # fmt: skip
        self._node.sampling.measure_times()
        for inbox in runners:
            for watch, is_running in _watches(inbox):
                watch.start(self._node.clock, is_running=is_running)
                watch.on_call = partial(self._on_call, inbox)

    def _on_call(self, inbox: Inbox, message: Message, seconds: float) -> None:
        """Report that a handler has ended. The thread or the task of the handler calls this method."""
        asked = self._may_report(message)
        if asked is not None:
            now = self._node.runtime.time_ns()
            self._report(asked, message, {
                "group": inbox.entries[0].options.group if inbox.entries else None, "patterns": _patterns(inbox),
                "handled": now, "began": now - round(seconds * 1e9),
            })  # fmt: skip

    def on_recorded(self, inbox: Inbox, message: Any, offset: int) -> None:
        """Report that a recorder has written a message to its journal, if the message is marked.

        Any thread may call this method.

        Args:
            inbox: inbox of the recorder's subscription.
            message: message that the recorder has written.
            offset: offset of the message in the journal.
        """
        asked = self._may_report(message)
        if asked is not None:
            self._report(asked, message, {
                "group": inbox.entries[0].options.group if inbox.entries else None, "patterns": _patterns(inbox),
                "recorded": self._node.runtime.time_ns(), "offset": offset,
            })  # fmt: skip

    @property
    def is_asked(self) -> bool:
        """Whether this node has answered a question that has not expired. Only then does it report messages."""
        return bool(self._answered)

    def _may_report(self, message: Any) -> _Asked | None:
        """Return the question of a marked message and count a report. Return None if no report may be sent."""
        trace_id = message.headers.get(HEADER)
        if type(trace_id) is not bytes:
            return None
        asked = self._answered.get(trace_id)
        if asked is None or not asked.left:
            return None
        asked.left -= 1
        return asked

    def _report(self, asked: _Asked, message: Message, report: dict[str, Any]) -> None:
        content = [message.headers[HEADER], _REPORT, {"node": self._node.id.hex(), **report}]
        self._outgoing.append((asked.peer, msgpack.packb(content, unicode_errors="surrogateescape")))
        self._node.wake()

    # Methods of the attending side.

    def turn(self, now: float) -> None:
        """Answer questions of peers, and send reports."""
        if self._arrived:
            arrived, self._arrived, self._arrived_bytes = self._arrived, [], 0
            for peer, key, denial, payload in arrived:
                content = unpack(payload, _MAX_SIZE)
                if type(content) is list and len(content) >= 3 and type(content[0]) is bytes:
                    self._on_content(peer, key, denial, content, now)
        while self._outgoing:
            self._send(*self._outgoing.popleft())
        if self._answered or self._passed:
            for known in (self._answered, self._passed):
                for trace_id in [each for each, asked in known.items() if asked.until <= now]:
                    del known[trace_id]
            if not self._answered:
                self._end_reports()

    def _end_reports(self) -> None:
        with self._node.subscriber.lock:
            self._node.subscriber.dispatcher.on_marked = None
            for watch in self._node.sampling.watches():
                watch.on_call = None

    def _send(self, peer: bytes, payload: bytes) -> None:
        # ValueError means that the message is too large for the peer.
        with suppress(ClosedError, ValueError):
            self._node.publisher.direct(peer, TRACE, payload)

    def _on_content(self, peer: bytes, key: str | None, denial: str, content: list[Any], now: float) -> None:
        trace_id, kind, body = content[:3]
        if kind == _QUESTION:
            via = content[3] if len(content) > 3 else None
            if (
                type(body) is bytes
                and type(via) is bytes
                and len(trace_id) == _ID
                and trace_id not in self._open
            ):
                self._answer(peer, key, denial, trace_id, body, via, now)
            return
        try:
            checked = _check_hop(body) if kind == _ANSWER else _check_report(body)
        except (TypeError, KeyError):
            return
        if peer.hex() == checked["node"] and kind == _ANSWER:
            checked["asker"] = self._node.id.hex()
            self._add_refusals(peer, checked)
        passed, trace = self._passed.get(trace_id), self._open.get(trace_id)
        if passed is not None:
            back = msgpack.packb([trace_id, kind, checked], unicode_errors="surrogateescape")
            passed.back._send(passed.peer, back)
        elif trace is not None and len(trace.hops) + len(trace.reports) < 10 * _MAX_OPEN:
            if kind == _ANSWER and peer.hex() not in (checked["node"], *trace.forwarders):
                return
            if kind == _ANSWER:
                trace.add(checked)
            else:
                trace.reports.append(checked)
            self._node._notify_waiters()

    def _answer(
        self, peer: bytes, key: str | None, untraced: str, trace_id: bytes, raw: bytes, via: bytes, now: float
    ) -> None:
        node = self._node
        hop = {**self._empty_hop(), "untraced": untraced}
        if not untraced:
            if trace_id not in self._answered:
                _bound(self._answered)
                self._answered[trace_id] = _Asked(peer, now + SECONDS, self)
                node.subscriber.dispatcher.on_marked = self._on_marked
            denied = self._denial(key, raw)
            if denied is not None:
                hop["denied"], hop["rule"] = denied[:_MAX_TEXT], denied.rule
            with node.subscriber.lock:
                found = [*_matching(node.subscriber.subscriptions, raw)]
            journals = self.journals
            hop["subscriptions"] = [_describe(each, raw, journals) for each in found[:MAX_SUBSCRIPTIONS]]
            if not hop["denied"]:
                hop["legs"] = self.pass_on(self, trace_id, raw, via, peer)
        self._outgoing.append(
            (peer, msgpack.packb([trace_id, _ANSWER, hop], unicode_errors="surrogateescape"))
        )

    def _denial(self, key: str | None, raw: bytes) -> Denial | None:
        keys = self._node.subscriber.keys
        if keys is None or key is None:
            return None
        text = raw.decode(errors="backslashreplace")
        return denial_of(keys.credentials.rights().permissions, key, "publish", text)

    def _add_refusals(self, peer: bytes, hop: Hop) -> None:
        """Set `refused` in each subscription of a hop to the reason of this node's refusal, or to an empty text."""
        with self._node.publisher.lock:
            session = self._node.publisher.session_of(peer)
            refused = {} if session is None else dict(session.refused)
        for subscription in hop["subscriptions"]:
            refusal = refused.get(subscription["sid"])
            subscription["refused"] = "" if refusal is None else refusal.reason


def _bound(known: dict[bytes, _Asked]) -> None:
    while len(known) >= _MAX_OPEN:
        del known[next(iter(known))]


def _matching(subscriptions: Subscriptions, raw: bytes) -> Iterator[Subscription]:
    for stream in [*subscriptions._active]:
        # Call the method of the base class, because the subscriptions of a forwarder override `match`.
        yield from Subscriptions.match(subscriptions, stream, raw, None)


def _describe(subscription: Subscription, raw: bytes, journals: Mapping[Inbox, str]) -> dict[str, Any]:
    pattern, options, runner = subscription.pattern, subscription.options, subscription.owner.handler
    journal = journals.get(subscription.owner, "")
    prefix = next((each for each in pattern.prefixes if raw.startswith(each)), b"")
    handler = runner.handler if isinstance(runner, (Runner, InlineRunner)) and not journal else None
    name = "" if handler is None else getattr(handler, "__qualname__", type(handler).__qualname__)
    return {
        "sid": subscription.sid, "pattern": _text(pattern.text), "dialect": pattern.dialect, "prefix": _text(prefix),
        "group": options.group, "refused": "", "handler": _text(name), "journal": _text(journal),
    }  # fmt: skip


def _patterns(inbox: Inbox) -> list[str]:
    return [_text(entry.pattern.text) for entry in inbox.entries[:MAX_SUBSCRIPTIONS]]


def _text(text: str | bytes) -> str:
    decoded = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
    return decoded[:_MAX_TEXT]


def _watches(inbox: Inbox) -> Iterator[tuple[Any, bool]]:
    if isinstance(inbox.handler, InlineRunner):
        yield inbox.handler.watch, False
    elif isinstance(inbox.handler, Runner):
        for lane in inbox.handler.lanes.all:
            yield lane.watch, lane.is_scheduled


_Kinds = dict[str, type | tuple[type, ...]]
_HOP: _Kinds = {
    "node": str, "name": str, "kind": str, "bus": str, "asker": str, "untraced": str, "denied": str,
    "rule": (str, type(None)), "subscriptions": list, "legs": list, "asked": list, "recipients": list,
}  # fmt: skip
_RECIPIENT: _Kinds = {
    "node": str, "group": (str, type(None)), "picked": bool, "state": str, "pending": int,
}  # fmt: skip
_SUBSCRIPTION: _Kinds = {
    "sid": int, "pattern": str, "dialect": str, "prefix": str, "group": (str, type(None)),
    "handler": str, "refused": str, "journal": str,
}  # fmt: skip
_RECEIVED: _Kinds = {
    "node": str, "group": (str, type(None)), "patterns": list, "received": int, "handlers": int, "journals": int,
}  # fmt: skip
_RECORDED: _Kinds = {
    "node": str, "group": (str, type(None)), "patterns": list, "recorded": int, "offset": int,
}  # fmt: skip
_HANDLED: _Kinds = {
    "node": str, "group": (str, type(None)), "patterns": list, "began": int, "handled": int,
}  # fmt: skip


def _check(found: Any, fields: _Kinds) -> dict[str, Any]:
    """Return the known fields of a map that a peer has sent.

    Raises:
        TypeError, KeyError: a field has a wrong type, or is missing.
    """
    if not all(isinstance(found[name], kind) for name, kind in fields.items()):
        raise TypeError("a field has a wrong type")
    return {name: found[name] for name in fields}


def _check_all(found: Iterable[Any], fields: _Kinds) -> list[dict[str, Any]]:
    return [_check(each, fields) for each in found]


def _check_texts(found: Collection[Any]) -> None:
    if not all(type(each) is str for each in found):
        raise TypeError("an element is no text")


def _check_hop(found: Any, *, is_leg: bool = False) -> Hop:
    hop = _check(found, _HOP)
    _check_texts(hop["asked"])
    hop["subscriptions"] = _check_all(hop["subscriptions"][:MAX_SUBSCRIPTIONS], _SUBSCRIPTION)
    hop["recipients"] = _check_all(hop["recipients"][:MAX_SUBSCRIPTIONS], _RECIPIENT)
    hop["legs"] = [] if is_leg else [_check_hop(leg, is_leg=True) for leg in hop["legs"][:MAX_SUBSCRIPTIONS]]
    return hop


def _check_report(found: Any) -> dict[str, Any]:
    kind = _HANDLED if "handled" in found else _RECORDED if "recorded" in found else _RECEIVED
    report = _check(found, kind)
    _check_texts(report["patterns"])
    return report
