"""Reader of the permission file: TOML with users, roles and rules. The reader collects all faults with their lines.

::

    default = "deny"

    [users.desk]
    key = "<public key, 40 characters>"
    roles = ["reader"]

    [roles.reader]
    subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from oz.configuration.files import load_toml, open_file
from oz.configuration.settings import nearest_name
from oz.configuration.toml_lines import KeyPath, TomlLines, format_location
from oz.errors import ConfigurationError, PatternError, Undecidable
from oz.security.identity import KEY_SIZE, is_key
from oz.security.permissions import ACTIONS, Action, Effect, Permissions, Responses, Rule, User
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern, compile, compile_with_default

MAX_FILE_SIZE = 1 << 22
"""Maximum size of a permission file in bytes: enough for thousands of users. A larger file is refused."""

_TOP = ("default", "dialect", "users", "roles")
_USER = ("key", "keys", "roles", *ACTIONS)
_LISTS = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class PermissionFile:
    """Contents of a file of permissions.

    Attributes:
        path: path of the file.
        permissions: users and rules; None if the file has a fault.
        faults: all faults, in the order of their lines.
        warnings: texts about rules that have no effect, and about roles that no user has.
    """

    path: str
    permissions: Permissions | None
    faults: tuple[ConfigurationError, ...]
    warnings: tuple[str, ...]


def read_permissions(
    path: str | os.PathLike[str], warn: Callable[[str], object] | None = None
) -> Permissions:
    """Read a file of permissions.

    Args:
        path: path of the file.
        warn: function that is called with the text of each warning; None ignores warnings.

    Raises:
        ConfigurationError: the file cannot be read, is not TOML, or has a wrong value. It describes the first fault.
    """
    found = survey_permissions(path)
    if found.permissions is None:
        raise found.faults[0]
    if warn is not None:
        for text in found.warnings:
            warn(f"{found.path}: {text}")
    return found.permissions


def survey_permissions(path: str | os.PathLike[str]) -> PermissionFile:
    """Read a file of permissions. Faults are returned, and not raised."""
    name = os.fspath(path)
    try:
        with open_file(Path(name)) as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise OSError(f"all users can write it: chmod o-w {name}")
            data = file.read(MAX_FILE_SIZE + 1)
        whole = load_toml(BytesIO(data), MAX_FILE_SIZE)
    except OSError as error:
        return _unreadable(name, f"{error.strerror or error}; make it readable, or name another file")
    except (ValueError, RecursionError) as error:
        return _unreadable(name, f"not TOML: {error}")
    reader = _Reader(name, whole, TomlLines(data.decode()))
    permissions = reader.read()
    faults = tuple(item for _, item in sorted(reader.faults, key=lambda fault: fault[0]))
    return PermissionFile(name, None if faults else permissions, faults, tuple(reader.warnings))


def _unreadable(name: str, rule: str) -> PermissionFile:
    return PermissionFile(name, None, (ConfigurationError(None, None, f"file {name}", rule),), ())


class _Reader:
    """Reader of one file that collects faults and warnings."""

    def __init__(self, name: str, whole: Mapping[str, Any], lines: TomlLines) -> None:
        self._name, self._whole, self._lines = name, whole, lines
        self._dialect, self._default = DEFAULT_DIALECT, "deny"
        self.faults: list[tuple[int, ConfigurationError]] = []
        self.warnings: dict[str, None] = {}

    def read(self) -> Permissions:
        self._check_names((), self._whole, _TOP)
        default = self._choice(("default",), self._whole.get("default", "deny"), _EFFECTS)
        self._default = default
        named = tuple(dialects.BY_NAME)
        self._dialect = self._choice(("dialect",), self._whole.get("dialect", DEFAULT_DIALECT), named)
        roles = {name: self._rules(("roles", name), table, ACTIONS) for name, table in self._tables("roles")}
        users: dict[str, User] = {}
        for name, table in self._tables("users"):
            users[name] = self._user(name, table, roles)
        self._check_keys(users)
        for name in roles.keys() - {role for user in users.values() for role in user.roles}:
            self._warn(("roles", name), "no user has this role")
        return Permissions("allow" if default == "allow" else "deny", users, Path(self._name).name)

    def _user(self, name: str, table: Mapping[str, Any], roles: Mapping[str, _RuleSet]) -> User:
        path: KeyPath = ("users", name)
        own = self._rules(path, table, _USER)
        faults = len(self.faults)
        keys = tuple(self._keys(path, table))
        if not keys and len(self.faults) == faults:
            self._fault(path, None, 'give the user a key: key = "…", as `oz keys show` prints it')
        named = tuple(self._texts((*path, "roles"), table.get("roles", [])))
        for at, role in enumerate(named):
            if role not in roles:
                guess = nearest_name(role, roles)
                listed = f"the roles are {', '.join(roles)}" if roles else "the file has no roles"
                advice = f"did you mean {guess}?" if guess else listed
                self._fault((*path, "roles", at), role, f"no role has this name; {advice}")
        granted = [own, *(roles[role] for role in named if role in roles)]
        rules = tuple(rule for permission in granted for rule in permission.rules)
        responses = next(
            (permission.responses for permission in granted if permission.responses is not None), None
        )
        self._warn_of_covered_rules(rules)
        self._warn_of_useless_denials(rules, has_responses=responses is not None)
        return User(name, keys, named, rules, responses)

    def _keys(self, path: KeyPath, table: Mapping[str, Any]) -> Iterator[str]:
        single = table.get("key")
        given = [] if single is None else [((*path, "key"), single)]
        several = table.get("keys", [])
        given += [((*path, "keys", at), key) for at, key in enumerate(self._texts((*path, "keys"), several))]
        for where, key in given:
            if isinstance(key, str) and is_key(key):
                yield key
            else:
                self._fault(
                    where, key, f"a public key has {KEY_SIZE} characters of Z85, as `oz keys show` prints"
                )

    def _check_keys(self, users: Mapping[str, User]) -> None:
        owners: dict[str, str] = {}
        for user in users.values():
            for key in user.keys:
                other = owners.setdefault(key, user.name)
                if other != user.name:
                    self._fault(("users", user.name), key, f"the user {other} has this key too")

    def _rules(self, path: KeyPath, table: Mapping[str, Any], known: tuple[str, ...]) -> _RuleSet:
        self._check_names(path, table, known)
        rules: list[Rule] = []
        responses: Responses | None = None
        for action in ACTIONS:
            lists = table.get(action)
            if lists is None:
                continue
            where = (*path, action)
            if not isinstance(lists, dict):
                self._fault(where, lists, f'write {action} = {{ allow = ["md.>"], deny = ["md.secret.>"] }}')
                continue
            more = ("allow_responses",) if action == "reply" else ()
            self._check_names(where, lists, (*_LISTS, *more))
            if action == "history":
                self._warn(where, _HISTORY_UNUSED)
            rules += self._read_rules(where, lists, action)
            if "allow_responses" in lists and more:
                responses = self._responses((*where, "allow_responses"), lists["allow_responses"])
        return _RuleSet(tuple(rules), responses)

    def _read_rules(self, path: KeyPath, lists: Mapping[str, Any], action: Action) -> Iterator[Rule]:
        if lists.get("allow") == [] and self._default == "allow":
            # The author of an empty list probably wants to allow nothing, but the default allows everything.
            rule = f'an empty list leaves {action} to the default, which is "allow"; write deny = [">"]'
            self._fault((*path, "allow"), [], rule)
        for effect in _EFFECTS:
            for at, text in enumerate(self._texts((*path, effect), lists.get(effect, []))):
                where = (*path, effect, at)
                try:
                    yield self._rule(where, action, effect, text)
                except PatternError as error:
                    self._fault(where, text, f"position {error.position}: {error.rule}")

    def _rule(self, where: KeyPath, action: Action, effect: Effect, text: str) -> Rule:
        group: Pattern | None = None
        subjects = text
        if action == "group":
            # The text is a subject, or a subject and a group name after a blank. The last blank separates the two,
            # because a subject may contain blanks and the name of a group may not.
            subjects, blank, name = text.rpartition(" ")
            if not blank:
                subjects, name = text, "*"
            group = compile(name, "redis")
        _check_dialect_name(subjects)
        pattern = compile_with_default(subjects, None, self._dialect)
        return Rule(action, effect, text, pattern, self._place(where, text), group)

    def _responses(self, path: KeyPath, value: Any) -> Responses | None:
        if isinstance(value, bool):
            return Responses() if value else None
        if isinstance(value, dict):
            self._check_names(path, value, ("count", "seconds"))
            count, seconds = value.get("count", 1), value.get("seconds", 5.0)
            is_count = isinstance(count, int) and not isinstance(count, bool) and count > 0
            if (
                is_count
                and isinstance(seconds, (int, float))
                and not isinstance(seconds, bool)
                and seconds > 0
            ):
                return Responses(count, float(seconds))
        self._fault(path, value, "write true, or { count = 1, seconds = 5.0 } with numbers above 0")
        return None

    def _warn_of_covered_rules(self, rules: tuple[Rule, ...]) -> None:
        """Add a warning for each `allow` rule that has no effect, because a `deny` rule covers all its subjects."""
        for action in ACTIONS:
            ours = [rule for rule in rules if rule.action == action and rule.group is None]
            allowed = [rule for rule in ours if rule.effect == "allow"]
            denied = _PrefixIndex(rule for rule in ours if rule.effect == "deny")
            for rule in allowed:
                for other in denied.candidates(rule):
                    if _covers(other.pattern, rule.pattern):
                        self._add_warning(f"{rule} has no effect: {other}")
                        break

    def _warn_of_useless_denials(self, rules: tuple[Rule, ...], *, has_responses: bool) -> None:
        """Add a warning for each `deny` rule of an action without `allow` rules.

        In NATS, such a rule allows all other subjects. In oz, the default denies them.
        """
        if self._default == "allow":
            return
        allowed = {rule.action for rule in rules if rule.effect == "allow"}
        allowed |= {"history", *(["reply"] if has_responses else ())}
        if "group" in allowed:
            # `deny` rules for subscribe also apply to members of groups, so they have an effect.
            allowed.add("subscribe")
        for rule in rules:
            if rule.effect == "deny" and rule.action not in allowed:
                advice = f'{rule.action} = {{ allow = [">"], deny = … }} allows all other subjects'
                self._add_warning(
                    f"{rule} has no effect: nothing is allowed, and the default is deny; {advice}"
                )

    def _tables(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        tables = self._whole.get(name, {})
        if not isinstance(tables, dict):
            self._fault((name,), tables, f"write tables: [{name}.NAME]")
            return
        for item, table in tables.items():
            if isinstance(table, dict):
                yield item, table
            else:
                self._fault((name, item), table, f"write it as a table: [{name}.{item}]")

    def _check_names(self, path: KeyPath, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                guess = nearest_name(key, known)
                advice = f"did you mean {guess}?" if guess else f"the keys here are {', '.join(known)}"
                self._fault((*path, key), table[key], f"no key here has this name; {advice}")

    def _texts(self, path: KeyPath, value: Any) -> list[str]:
        if isinstance(value, list) and all(isinstance(element, str) for element in value):
            return value
        self._fault(path, value, 'write a list of texts: ["…", "…"]')
        return []

    def _choice(self, path: KeyPath, value: Any, known: tuple[str, ...]) -> str:
        if value in known:
            return str(value)
        self._fault(path, value, f"it is one of {', '.join(known)}")
        return known[0]

    def _place(self, path: KeyPath, value: Any = None) -> str:
        return format_location(path, self._lines.line_of(path, value))

    def _fault(self, path: KeyPath, value: Any, rule: str) -> None:
        line = self._lines.line_of(path, value)
        name = format_location(path, line).rpartition(",")[0]
        error = ConfigurationError(name, value, f"file {self._name}, line {line}", rule)
        self.faults.append((line, error))

    def _warn(self, path: KeyPath, text: str) -> None:
        self._add_warning(f"{self._place(path)}: {text}")

    def _add_warning(self, text: str) -> None:
        self.warnings[text] = None


_HISTORY_UNUSED = (
    "rules for history have no effect yet: the right to subscribe includes last values and replayed "
    "messages, and the modes of its files protect a journal"
)

_EFFECTS: tuple[Effect, ...] = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class _RuleSet:
    """Rules of one user or role."""

    rules: tuple[Rule, ...]
    responses: Responses | None


class _PrefixIndex:
    """Index of rules by the prefixes of their patterns, so that only rules with similar prefixes are compared."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._at: dict[bytes, list[int]] = {}
        for at, rule in enumerate(self._rules):
            for prefix in rule.pattern.prefixes:
                self._at.setdefault(prefix, []).append(at)
        self._sorted = sorted(self._at)

    def candidates(self, rule: Rule) -> list[Rule]:
        """Return the rules that may cover a rule, in the order of the file."""
        found: set[int] = set()
        for prefix in rule.pattern.prefixes:
            for size in range(len(prefix)):
                found.update(self._at.get(prefix[:size], ()))
            for longer in islice(self._sorted, bisect_left(self._sorted, prefix), None):
                if not longer.startswith(prefix):
                    break
                found.update(self._at[longer])
        return [self._rules[at] for at in sorted(found)]


def _covers(pattern: Pattern, other: Pattern) -> bool:
    try:
        return pattern.covers(other)
    except Undecidable:
        return False


def _check_dialect_name(text: str) -> None:
    """Raise PatternError if a pattern begins with a misspelled dialect name and a colon.

    Without this check, the name would be a part of the subject, and the rule would match nothing.
    """
    word, colon, _ = text.partition(":")
    if (
        colon
        and word not in dialects.BY_NAME
        and (near := nearest_name(word.lower(), tuple(dialects.BY_NAME)))
    ):
        rule = f"no dialect has the name {word!r}; did you mean {near}? If it is part of the subject, write nats:{text}"
        raise PatternError(DEFAULT_DIALECT, text, 0, rule)
