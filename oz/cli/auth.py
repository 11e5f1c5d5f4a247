"""`oz auth`: the permissions of users, from the rules in a permission file."""

from __future__ import annotations

from typing import Any

import click

from oz.cli.exits import FAILED, describe
from oz.cli.options import dialect_option, parse_all
from oz.cli.output import json_field, json_option, plain_table, print_stderr, write_json, write_line
from oz.configuration.permission_file import PermissionFile, read_permissions, survey_permissions
from oz.escaping import printable
from oz.node.subjects import INBOX, OWN, reaches
from oz.security.permissions import ACTIONS, Action, Permissions, User, Verdict
from oz.transport.security import credentials_of, resolve_security

_HELP = """Show the permissions that a file grants to users, and the rules.

The file is TOML; docs/security.md describes it. These commands only read it.

\b
  default = "deny"
  [users.desk]
  key = "<public key>"
  roles = ["reader"]
  [roles.reader]
  subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }
"""

_EXPLAIN_HELP = """Show whether USER may use SUBJECT, and the rule that decides. SUBJECT may be a pattern.

A pattern is granted if one allow rule covers it and no deny rule overlaps it. A denial names a subject of the pattern
that USER may not use. Without --action all actions are shown, and --group adds the action of a queue group. The exit
code is 1 if --action is denied, and 0 otherwise.

\b
Examples:
  oz auth explain desk 'md.*' --file permissions.toml
  oz auth explain desk 'md.>' --action group --group workers --file permissions.toml
"""

_CHECK_HELP = """Check FILE. Print each fault with its line, and a warning for each rule that has no effect.

The exit code is 1 if the file has a fault, and 0 otherwise.
"""

_RESERVED_NOTE = (
    f"subjects that begin with {INBOX.decode()} and {OWN.decode()} belong to nodes: the answer below is about sockets. "
    "Between nodes, an inbox belongs to the key of its node, and no program publishes or subscribes to "
    f"{OWN.decode()}"
)

_MATRIX_HELP = (
    """Print a table of users and actions, with the allowed subjects. A minus marks denied subjects."""
)


@click.group(help=_HELP, short_help="Show the permissions of users.")
def auth() -> None:
    """Group the commands of `oz auth`; `_HELP` is the text of `--help`."""


@auth.command(
    help=_EXPLAIN_HELP, short_help="Show whether a user may use a subject or pattern, and the rule."
)
@click.argument("user")
@click.argument("subject")
@click.option("--file", "path", metavar="FILE",
              help="The file of permissions.  [default: the file that OZ_SECURITY or the configuration names]",
)  # fmt: skip
@click.option("--action", type=click.Choice(ACTIONS), help="This action only.")
@click.option("-g", "--group", metavar="NAME", help="The queue group, for the action group.")
@dialect_option("SUBJECT, if it has no dialect name")
@json_option()
@click.pass_context
def explain(
    ctx: click.Context,
    user: str,
    subject: str,
    path: str | None,
    action: Action | None,
    group: str | None,
    dialect: str,
    as_json: bool,
) -> None:
    """Explain whether a user may do an action on a subject; `_EXPLAIN_HELP` is the text of `--help`."""
    if action == "group" and group is None:
        raise click.UsageError("--action group needs --group NAME")
    permissions = _read_default() if path is None else _read(ctx, path)
    found = _find(permissions, user)
    [asked] = parse_all([subject], dialect)
    has_group = group is not None or action == "group"
    if reaches(asked, INBOX) or reaches(asked, OWN):
        print_stderr(ctx, f"warning: {_RESERVED_NOTE}")
    actions = (action,) if action else [item for item in ACTIONS if item != "group" or has_group]
    verdicts = {item: permissions.decide(found, item, asked, group) for item in actions}
    if as_json:
        write_json({item: _data(verdict) for item, verdict in verdicts.items()})
    else:
        rows = [(item, _granted(verdict), printable(verdict.reason)) for item, verdict in verdicts.items()]
        write_line(plain_table(rows))
    if action is not None and not verdicts[action].granted:
        ctx.exit(FAILED)


@auth.command(help=_CHECK_HELP, short_help="Check a file of permissions.")
@click.argument("file")
@json_option()
@click.pass_context
def check(ctx: click.Context, file: str, as_json: bool) -> None:
    """Check a file of permissions; `_CHECK_HELP` is the text of `--help`."""
    found = survey_permissions(file)
    faults = [describe(fault) for fault in found.faults]
    if as_json:
        write_json({"ok": found.permissions is not None, "faults": faults, "warnings": [*found.warnings]})
        ctx.exit(0 if found.permissions is not None else FAILED)
    for warning in found.warnings:
        print_stderr(ctx, f"warning: {warning}")
    for fault in faults:
        print_stderr(ctx, fault)
    if found.permissions is None:
        ctx.exit(FAILED)
    write_line(_summary(found, found.permissions))


@auth.command(help=_MATRIX_HELP, short_help="Print a table of users and permissions.")
@click.argument("file")
@json_option("Write a JSON list of objects.")
@click.pass_context
def matrix(ctx: click.Context, file: str, as_json: bool) -> None:
    """Print a table of all users and their rules; `_MATRIX_HELP` is the text of `--help`."""
    permissions = _read(ctx, file)
    users = permissions.users.values()
    used = [action for action in ACTIONS if any(_has_rules(user, action) for user in users)]
    if as_json:
        write_json([_rules(user) for user in users])
        return
    rows = [("user", *used)]
    rows += [(printable(user.name), *(_cell(permissions, user, action) for action in used)) for user in users]
    write_line(plain_table(rows))


def _read(ctx: click.Context, path: str) -> Permissions:
    return read_permissions(path, lambda text: print_stderr(ctx, f"warning: {text}"))


def _read_default() -> Permissions:
    credentials = credentials_of(resolve_security())
    if credentials is None or credentials.permissions is None:
        raise click.UsageError(
            "give --file: neither OZ_SECURITY nor the configuration file names permissions"
        )
    return credentials.permissions


def _has_rules(user: User, action: Action) -> bool:
    has_rules = user.rules_of(action, "allow") or user.rules_of(action, "deny")
    return bool(has_rules) or (action == "reply" and user.responses is not None)


def _find(permissions: Permissions, name: str) -> User:
    user = permissions.users.get(name) or permissions.user_of(name)
    if user is None:
        known = ", ".join(map(printable, permissions.users)) or "none"
        raise click.UsageError(f"no user has the name or key {printable(name)!r}; the users are {known}")
    return user


def _rules(user: User) -> dict[str, Any]:
    actions = {
        action: {
            "allow": [printable(rule.text) for rule in user.rules_of(action, "allow")],
            "deny": [printable(rule.text) for rule in user.rules_of(action, "deny")],
        }
        for action in ACTIONS
        if _has_rules(user, action)
    }
    return {"user": printable(user.name), "rules": actions}


def _granted(verdict: Verdict) -> str:
    return "granted" if verdict.granted else "denied"


def _data(verdict: Verdict) -> dict[str, Any]:
    subject = {"subject": None} if verdict.subject is None else json_field("subject", verdict.subject)
    rule = None if verdict.rule is None else {"text": verdict.rule.text, "place": verdict.rule.place}
    return {"granted": verdict.granted, "rule": rule, **subject, "reason": printable(verdict.reason)}


def _summary(found: PermissionFile, permissions: Permissions) -> str:
    rules = sum(len(user.rules) for user in permissions.users.values())
    users, default = len(permissions.users), permissions.default
    return f"{printable(found.path)}: users: {users}; rules: {rules}; default: {default}"


def _cell(permissions: Permissions, user: User, action: Action) -> str:
    allowed = [printable(rule.text) for rule in user.rules_of(action, "allow")]
    denied = [f"-{printable(rule.text)}" for rule in user.rules_of(action, "deny")]
    if action == "reply" and (responses := user.responses) is not None:
        allowed.append(f"({responses.count} to each request, for {responses.seconds:g} s)")
    if not allowed:
        allowed = ["(all)"] if permissions.default == "allow" else []
    return " ".join([*allowed, *denied]) if allowed else "-"
