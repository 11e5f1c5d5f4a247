"""`oz trace`: the path of a message through the bus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

import oz
from oz.cli.exits import NOBODY
from oz.cli.joining import is_ready, joined, joining_options, print_key_hints
from oz.cli.options import Number
from oz.cli.output import json_option, print_stderr, write_line
from oz.cli.payloads import PayloadForm, payload_option
from oz.escaping import json_text, printable
from oz.node.trace import HEADER, Hop, Trace
from oz.transport.waiting import wait_in_thread

_HELP = """Show which nodes receive a message on SUBJECT, and why.

The command joins the bus as a publisher. Each node answers with its subscriptions that match the subject, and with the
permission that denies the message, if one denies it. No message is sent. Forwarders pass the question to other buses.

With --send the command publishes a marked message. Each node reports when the message arrived, and when its handler
began and ended. A recorder reports when the message is in the journal, and the offset. Times are in milliseconds since
the publication, by the clock of each host.

If the nodes have permissions, the key of this command needs `request` for the subject _OZ.TRACE. The exit code is 3 if
no subscription receives the subject.

\b
Examples:
  oz trace order.new
  oz trace order.new --send '{"size": 5}' --payload json
"""


@click.command(help=_HELP, short_help="Show which nodes receive a message, and why.")
@click.argument("subject")
@click.option("--send", "sent", metavar="PAYLOAD", help="Publish a marked message with this payload.")
@click.option("-t", "--timeout", type=Number(0.01, 3_600), default=2.0, metavar="SECONDS",
              help="Maximum time to wait for answers, and then for reports.  [default: 2]")  # fmt: skip
@json_option("Write one JSON object.")
@payload_option()
@joining_options
@click.pass_context
def trace(
    ctx: click.Context,
    /,
    subject: str,
    sent: str | None,
    timeout: float,
    as_json: bool,
    form: str,
    **joining: Any,
) -> None:
    """Trace a message; `_HELP` is the text of `--help`."""
    oz.validate_subject(subject)
    payloads = PayloadForm(form)
    payload = None if sent is None else payloads.read(sent.encode(errors="surrogateescape"))
    with joined(ctx, joining, node_options={"echo": False}, codec=payloads.codec) as node:
        is_ready(node, timeout)
        if not node.peers:
            print_key_hints(ctx, node)
        engine = node._node
        found: Trace = wait_in_thread(engine.news, engine.traces.ask(subject, timeout))
        published = None
        if sent is not None:
            published = time.time_ns()
            node.publish(subject, payload, headers={HEADER: found.id})
            wait_in_thread(engine.news, engine.traces.wait(found, timeout))
        engine.traces.close(found)
        names = {peer.id: peer.name for peer in node.peers}
    view = _View(found, names, published)
    if as_json:
        write_line(json_text(view.summary(subject), indent=2))
    else:
        for line in _lines(view.tree(subject)):
            write_line(printable(line))
    if not any(hop["recipients"] for hop in found.hops):
        text = (
            f"no declared subscription on bus {printable(found.hops[0]['bus'])} matches {printable(subject)}"
        )
        if unknown := view.without_details():
            text += f"; without details: {', '.join(map(printable, unknown))}"
        text += "; `oz peers` shows the nodes of the bus"
        print_stderr(ctx, text)
        ctx.exit(NOBODY)


_ENDS = ("received", "handled", "recorded")
"""Names of the fields with the time of a report. A report has one of these fields."""


class _Branch(NamedTuple):
    """Branch of the printed tree: the text of its line, and the branches below."""

    text: str
    below: list[_Branch]


class _View:
    """Answers and reports of the nodes, in the form in which they are printed."""

    def __init__(self, found: Trace, names: dict[str, str], published: int | None) -> None:
        self._found, self._published = found, published
        self._names = names | {hop["node"]: hop["name"] for hop in found.hops}
        self._parents: dict[str, list[Hop]] = {}
        for hop in found.hops[1:]:
            self._parents.setdefault(hop["asker"], []).append(hop)

    def summary(self, subject: str) -> dict[str, Any]:
        """Return the object for `--json`: the path of the message, and the nodes that have not answered."""
        own = self._found.hops[0]
        return {
            "subject": subject,
            "bus": own["bus"],
            "id": self._found.id.hex(),
            "recipients": self._recipients(own),
            "hops": [self._hop(hop) for hop in self._parents.get(own["node"], [])],
            "unanswered": self._unanswered(),
        }

    def without_details(self) -> list[str]:
        """Return the names of the nodes that have denied the trace, or that have not answered."""
        untraced = [hop["name"] for hop in self._found.hops if hop["untraced"]]
        return sorted({*untraced, *self._unanswered()})

    def _unanswered(self) -> list[str]:
        return sorted({self._name(node) for _, node in self._found.missing})

    def _name(self, node: str) -> str:
        return self._names.get(node) or node

    def _recipients(self, hop: Hop) -> list[dict[str, Any]]:
        return [{**each, "name": self._name(each["node"])} for each in hop["recipients"]]

    def _hop(self, hop: Hop) -> dict[str, Any]:
        return {
            **{name: hop[name] for name in ("node", "name", "kind", "bus", "untraced", "denied", "rule")},
            "subscriptions": hop["subscriptions"],
            "reports": [self._timed(report) for report in self._reports(hop)],
            "buses": [
                {
                    "bus": leg["bus"],
                    "recipients": self._recipients(leg),
                    "hops": [self._hop(below) for below in self._parents.get(leg["node"], [])],
                }
                for leg in hop["legs"]
            ],
        }

    def _reports(self, hop: Hop) -> list[dict[str, Any]]:
        found = [report for report in self._found.reports if report["node"] == hop["node"]]
        return sorted(found, key=lambda report: next(report[name] for name in _ENDS if name in report))

    def _timed(self, report: dict[str, Any]) -> dict[str, Any]:
        times: dict[str, Any] = {
            name: self._milliseconds(report[name]) for name in ("began", *_ENDS) if name in report
        }
        if "offset" in report:
            times["offset"] = report["offset"]
        return {"patterns": report["patterns"], "group": report["group"], **times}

    def _milliseconds(self, time_ns: int) -> float:
        return round((time_ns - (self._published or time_ns)) / 1e6, 3)

    def tree(self, subject: str) -> _Branch:
        own = self._found.hops[0]
        below = self._peers(own)
        below += [_Branch(f"{name}: no answer", []) for name in self._unanswered()]
        return _Branch(f"{subject} from {own['name']} on bus {own['bus']}", below)

    def _peers(self, publisher: Hop) -> list[_Branch]:
        """Return a branch for each peer that receives, denies or forwards the message of a publisher."""
        given = {(each["node"], each["group"]): each for each in publisher["recipients"]}
        receivers = {node for node, _ in given}
        branches, shown = [], set()
        for hop in sorted(self._parents.get(publisher["node"], []), key=lambda hop: str(hop["name"])):
            shown.add(hop["node"])
            lines = list(self._lines_of(hop, given))
            crossings = [(leg["bus"], self._peers(leg)) for leg in hop["legs"] if hop["node"] in receivers]
            legs = [_Branch(f"to bus {bus}", below) for bus, below in crossings if below]
            if lines or legs:
                kind = "" if hop["kind"] == "node" else f" ({hop['kind']})"
                branches.append(_Branch(hop["name"] + kind, [_Branch(line, []) for line in lines] + legs))
        for node, group in given:
            if node not in shown and (publisher["node"], node) not in self._found.missing:
                where = "" if group is None else f", group {group}"
                branches.append(_Branch(f"{self._name(node)}: receives{where}, does not answer", []))
        return branches

    def _lines_of(self, hop: Hop, given: dict[tuple[str, str | None], dict[str, Any]]) -> Iterator[str]:
        if hop["untraced"]:
            is_given = any(node == hop["node"] for node, _ in given)
            # "has a subscription" and not "receives": the permissions of the node may deny the message.
            yield f"{'has a subscription; ' if is_given else ''}no details: {hop['untraced']}"
        if hop["denied"]:
            yield f"denied: {hop['denied']}"
        for each in hop["subscriptions"]:
            yield f"{_why(each)}: {self._fate(hop, each, given.get((hop['node'], each['group'])))}"
        for report in self._reports(hop):
            timed = self._timed(report)
            if "received" in timed:
                yield f"received at {timed['received']:.3f} ms"
            elif "recorded" in timed:
                yield f"in the journal at {timed['recorded']:.3f} ms, offset {timed['offset']}"
            else:
                times = f"from {timed['began']:.3f} to {timed['handled']:.3f} ms"
                yield f"handler of {', '.join(timed['patterns'])} {times}"

    def _fate(self, hop: Hop, subscription: dict[str, Any], given: dict[str, Any] | None) -> str:
        """Return a text that tells whether a subscription receives the message, or the reason why it does not."""
        if subscription["refused"]:
            return f"the publisher refuses it: {subscription['refused']}"
        if given is None and hop["kind"] == "forwarder" and subscription["group"] is not None:
            return f"group {subscription['group']}, stands by for another forwarder"
        if given is None:
            return "the publisher has not applied it"
        if hop["denied"]:
            return "denied"
        handler = f", handler {subscription['handler']}" if subscription["handler"] else ""
        handler += f", journal {subscription['journal']}" if subscription["journal"] else ""
        if subscription["group"] is not None:
            received = [report["group"] for report in self._reports(hop)]
            is_picked = given["picked"] if self._published is None else subscription["group"] in received
            return f"group {subscription['group']}, {'picked' if is_picked else 'not picked'}{handler}"
        down = "" if given["state"] == "up" else f", link {given['state']}"
        pending = f", {given['pending']} pending" if given["pending"] else ""
        return f"receives{handler}{down}{pending}"


def _why(subscription: dict[str, Any]) -> str:
    prefix = f", prefix {subscription['prefix']}" if subscription["prefix"] else ""
    return f"{subscription['pattern']} ({subscription['dialect']}{prefix})"


def _lines(branch: _Branch, first: str = "", rest: str = "") -> Iterator[str]:
    yield first + branch.text
    for at, below in enumerate(branch.below, 1):
        is_last = at == len(branch.below)
        yield from _lines(below, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))
