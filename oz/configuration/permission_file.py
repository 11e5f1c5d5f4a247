"""The file of permissions: TOML with users, roles and rules.

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

from oz.configuration.files import Keys, TomlLines, load_toml, open_file, place
from oz.configuration.settings import meant
from oz.errors import ConfigurationError, PatternError, Undecidable
from oz.security.identity import KEY_SIZE, is_key
from oz.security.permissions import ACTIONS, Action, Effect, Permissions, Responses, Rule, User
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern, compile, compile_with_default

MOST_BYTES = 1 << 22
"""How large a file may be: thousands of users."""

_TOP = ("default", "dialect", "users", "roles")
_USER = ("key", "keys", "roles", *ACTIONS)
_LISTS = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class PermissionFile:
    """A file of permissions, read.

    Attributes:
        path: of the file.
        permissions: what it allows; None while something is wrong with it.
        faults: what is wrong, each with its line.
        warnings: what has no effect, or is probably meant otherwise.
    """

    path: str
    permissions: Permissions | None
    faults: tuple[ConfigurationError, ...]
    warnings: tuple[str, ...]


def read_permissions(
    path: str | os.PathLike[str], warn: Callable[[str], object] | None = None
) -> Permissions:
    """Read a file of permissions, whole.

    Args:
        path: of the file.
        warn: is told, in words, what has no effect.

    Raises:
        ConfigurationError: it cannot be read, is no TOML, or something in it makes no sense: the first fault.
    """
    found = survey_permissions(path)
    if found.permissions is None:
        raise found.faults[0]
    if warn is not None:
        for text in found.warnings:
            warn(f"{found.path}: {text}")
    return found.permissions


def survey_permissions(path: str | os.PathLike[str]) -> PermissionFile:
    """Read a file of permissions, and say all that is wrong with it.

    Args:
        path: of the file.
    """
    name = os.fspath(path)
    try:
        with open_file(Path(name)) as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise OSError(f"anybody may write it: chmod o-w {name}")
            data = file.read(MOST_BYTES + 1)
        whole = load_toml(BytesIO(data), MOST_BYTES)
    except OSError as error:
        return _unread(name, f"{error.strerror or error}; make it readable, or name another")
    except (ValueError, RecursionError) as error:
        return _unread(name, f"no TOML: {error}")
    reader = _Reader(name, whole, TomlLines(data.decode()))
    permissions = reader.read()
    faults = tuple(one for _, one in sorted(reader.faults, key=lambda fault: fault[0]))
    return PermissionFile(name, None if faults else permissions, faults, tuple(reader.warnings))


def _unread(name: str, rule: str) -> PermissionFile:
    return PermissionFile(name, None, (ConfigurationError(None, None, f"file {name}", rule),), ())


class _Reader:
    """Reads one file; collects what is wrong."""

    def __init__(self, name: str, whole: Mapping[str, Any], lines: TomlLines) -> None:
        self._name, self._whole, self._lines = name, whole, lines
        self._dialect, self._default = DEFAULT_DIALECT, "deny"
        self.faults: list[tuple[int, ConfigurationError]] = []
        self.warnings: dict[str, None] = {}

    def read(self) -> Permissions:
        self._check_names((), self._whole, _TOP)
        default = self._one_of(("default",), self._whole.get("default", "deny"), _EFFECTS)
        self._default = default
        named = tuple(dialects.BY_NAME)
        self._dialect = self._one_of(("dialect",), self._whole.get("dialect", DEFAULT_DIALECT), named)
        roles = {name: self._rules(("roles", name), table, ACTIONS) for name, table in self._tables("roles")}
        users: dict[str, User] = {}
        for name, table in self._tables("users"):
            users[name] = self._user(name, table, roles)
        self._check_keys(users)
        for name in roles.keys() - {role for user in users.values() for role in user.roles}:
            self._warn(("roles", name), "nobody has this role")
        return Permissions("allow" if default == "allow" else "deny", users)

    def _user(self, name: str, table: Mapping[str, Any], roles: Mapping[str, _Granted]) -> User:
        path: Keys = ("users", name)
        own = self._rules(path, table, _USER)
        faults = len(self.faults)
        keys = tuple(self._keys(path, table))
        if not keys and len(self.faults) == faults:
            self._fault(path, None, 'give the user a key: key = "…", as `oz keys show` prints it')
        named = tuple(self._texts((*path, "roles"), table.get("roles", [])))
        for at, role in enumerate(named):
            if role not in roles:
                guess = meant(role, roles)
                advice = f"did you mean {guess}?" if guess else f"there are {', '.join(roles) or 'none'}"
                self._fault((*path, "roles", at), role, f"there is no role of this name; {advice}")
        granted = [own, *(roles[role] for role in named if role in roles)]
        rules = tuple(rule for one in granted for rule in one.rules)
        responses = next((one.responses for one in granted if one.responses is not None), None)
        self._warn_of_idle(rules)
        self._warn_of_nothing_allowed(rules, has_responses=responses is not None)
        return User(name, keys, named, rules, responses)

    def _keys(self, path: Keys, table: Mapping[str, Any]) -> Iterator[str]:
        one = table.get("key")
        given = [] if one is None else [((*path, "key"), one)]
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

    def _rules(self, path: Keys, table: Mapping[str, Any], known: tuple[str, ...]) -> _Granted:
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
                self._warn(where, _UNASKED)
            rules += self._listed(where, lists, action)
            if "allow_responses" in lists and more:
                responses = self._responses((*where, "allow_responses"), lists["allow_responses"])
        return _Granted(tuple(rules), responses)

    def _listed(self, path: Keys, lists: Mapping[str, Any], action: Action) -> Iterator[Rule]:
        if lists.get("allow") == [] and self._default == "allow":
            # It looks as if nothing were allowed, and the default allows everything.
            rule = f'an empty list leaves {action} to the default, which is "allow"; write what is denied'
            self._fault((*path, "allow"), [], rule)
        for effect in _EFFECTS:
            for at, text in enumerate(self._texts((*path, effect), lists.get(effect, []))):
                where = (*path, effect, at)
                try:
                    yield self._rule(where, action, effect, text)
                except PatternError as error:
                    self._fault(where, text, f"position {error.position}: {error.rule}")

    def _rule(self, where: Keys, action: Action, effect: Effect, text: str) -> Rule:
        group: Pattern | None = None
        subjects = text
        if action == "group":
            # A subject may have blanks, a group's name here has none.
            subjects, blank, name = text.rpartition(" ")
            if not blank:
                subjects, name = text, "*"
            group = compile(name, "redis")
        _refuse_misspelt(subjects)
        pattern = compile_with_default(subjects, None, self._dialect)
        return Rule(action, effect, text, pattern, self._place(where, text), group)

    def _responses(self, path: Keys, value: Any) -> Responses | None:
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

    def _warn_of_idle(self, rules: tuple[Rule, ...]) -> None:
        """Warn of rules that allow only what another denies."""
        for action in ACTIONS:
            ours = [rule for rule in rules if rule.action == action and rule.group is None]
            allowed = [rule for rule in ours if rule.effect == "allow"]
            denied = _Beginnings(rule for rule in ours if rule.effect == "deny")
            for rule in allowed:
                for other in denied.candidates(rule):
                    if _covers(other.pattern, rule.pattern):
                        self._note(f"{rule} has no effect: {other}")
                        break

    def _warn_of_nothing_allowed(self, rules: tuple[Rule, ...], *, has_responses: bool) -> None:
        """Warn of rules that deny where nothing is allowed: elsewhere, as with NATS, they allow the rest."""
        if self._default == "allow":
            return
        allowed = {rule.action for rule in rules if rule.effect == "allow"}
        allowed |= {"history", *(["reply"] if has_responses else ())}
        if "group" in allowed:
            # Whoever joins a group is held to what is denied to subscribers.
            allowed.add("subscribe")
        for rule in rules:
            if rule.effect == "deny" and rule.action not in allowed:
                advice = f'{rule.action} = {{ allow = [">"], deny = … }} allows the rest'
                self._note(f"{rule} has no effect: nothing is allowed, and the default is deny; {advice}")

    # what is wrong ---------------------------------------------------------------------------------------

    def _tables(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        tables = self._whole.get(name, {})
        if not isinstance(tables, dict):
            self._fault((name,), tables, f"write tables: [{name}.NAME]")
            return
        for one, table in tables.items():
            if isinstance(table, dict):
                yield one, table
            else:
                self._fault((name, one), table, f"write it as a table: [{name}.{one}]")

    def _check_names(self, path: Keys, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                guess = meant(key, known)
                advice = f"did you mean {guess}?" if guess else f"there are {', '.join(known)}"
                self._fault((*path, key), table[key], f"nothing is called so here; {advice}")

    def _texts(self, path: Keys, value: Any) -> list[str]:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return value
        self._fault(path, value, 'write a list of texts: ["…", "…"]')
        return []

    def _one_of(self, path: Keys, value: Any, known: tuple[str, ...]) -> str:
        if value in known:
            return str(value)
        self._fault(path, value, f"it is one of {', '.join(known)}")
        return known[0]

    def _place(self, path: Keys, value: Any = None) -> str:
        return place(path, self._lines.line_of(path, value))

    def _fault(self, path: Keys, value: Any, rule: str) -> None:
        line = self._lines.line_of(path, value)
        name = place(path, line).rpartition(",")[0]
        error = ConfigurationError(name, value, f"file {self._name}, line {line}", rule)
        self.faults.append((line, error))

    def _warn(self, path: Keys, text: str) -> None:
        self._note(f"{self._place(path)}: {text}")

    def _note(self, text: str) -> None:
        self.warnings[text] = None


_UNASKED = (
    "nothing asks for history yet, so that these rules protect nothing: who may subscribe may have last "
    "values and what is replayed, and a journal has the rights of its files"
)

_EFFECTS: tuple[Effect, ...] = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class _Granted:
    """The rules of one user or role."""

    rules: tuple[Rule, ...]
    responses: Responses | None


class _Beginnings:
    """Rules by what their subjects begin with: of thousands few may be about the subjects of another."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._at: dict[bytes, list[int]] = {}
        for at, rule in enumerate(self._rules):
            for prefix in rule.pattern.prefixes:
                self._at.setdefault(prefix, []).append(at)
        self._sorted = sorted(self._at)

    def candidates(self, rule: Rule) -> list[Rule]:
        """Return the rules that may cover another, as they were written."""
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


def _refuse_misspelt(text: str) -> None:
    """Refuse a pattern whose dialect is misspelt: as a part of the subject it would deny nothing.

    Raises:
        PatternError: it is.
    """
    word, colon, _ = text.partition(":")
    if colon and word not in dialects.BY_NAME and (near := meant(word.lower(), tuple(dialects.BY_NAME))):
        rule = (
            f"no dialect is called {word!r}; did you mean {near}? As a part of the subject, write nats:{text}"
        )
        raise PatternError(DEFAULT_DIALECT, text, 0, rule)
