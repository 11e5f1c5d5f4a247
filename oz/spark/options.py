"""Options of `format("oz")`: parsing, and errors that suggest the right name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from oz.errors import ConfigurationError

T = TypeVar("T")

_LARGEST = (1 << 63) - 1


def option_error(name: str, value: object, rule: str) -> ConfigurationError:
    """Return the error for an option that is wrong, unknown or missing.

    Args:
        name: name of the option.
        value: wrong value; None if the option is unknown or missing.
        rule: text with the rule that the option breaks, and the remedy.
    """
    if value is None:
        return ConfigurationError(None, None, f"option {name}", rule)
    return ConfigurationError(name, value, "option of Spark", rule)


class OptionValues:
    """The options of one read or write, as Spark passes them.

    Each method returns the value of one option, or a default if the option is absent. It raises `ConfigurationError` if
    the value is not allowed. The case of option names is ignored, because Spark passes them in lower case.
    """

    def __init__(
        self, given: Mapping[str, str], names: Sequence[str], foreign: Mapping[str, str], side: str
    ) -> None:
        """Check the names of the given options.

        Args:
            given: values of the options by name.
            names: names of the known options.
            foreign: dict from options of other connectors, in lower case, to the options of oz that replace them.
            side: "source" or "sink", for error messages.

        Raises:
            ConfigurationError: an option is unknown.
        """
        self._given = {name.lower(): str(value) for name, value in given.items()}
        known = {name.lower(): name for name in names}
        for name in self._given.keys() - known.keys():
            # A name with a dot is an option of another connector, and no misspelled option of oz.
            similar = [] if "." in name else difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = foreign.get(name) or (known[similar[0]] if similar else None)
            meant = f"use {hint}. " if hint else ""
            raise option_error(
                name, None, f"the {side} has no such option; {meant}Options: {', '.join(names)}"
            )

    def __contains__(self, name: str) -> bool:
        """Return whether an option is given."""
        return name.lower() in self._given

    def given(self, name: str) -> str | None:
        """Return the text of an option, which may be empty; None if the option is absent."""
        return self._given.get(name.lower())

    def text(self, name: str) -> str | None:
        """Return the text of an option; None if the option is absent or empty."""
        return self._given.get(name.lower()) or None

    def parse(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return the value of an option, converted by `parse`; None if the option is absent.

        If `parse` raises `ValueError`, its text becomes the rule of the `ConfigurationError`.
        """
        text = self._given.get(name.lower())
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise option_error(name, text, str(error)) from None

    def integer(self, name: str, minimum: int = 1) -> int | None:
        """Return the value of an option as an integer of at least `minimum`."""

        def parse(text: str) -> int:
            text = text.strip()
            if not (text.isascii() and text.isdecimal() and minimum <= int(text) <= _LARGEST):
                raise ValueError(f"it must be an integer of at least {minimum}")
            return int(text)

        return self.parse(name, parse)

    def seconds(self, name: str, default: float, maximum: float = 86_400.0) -> float:
        """Return the value of an option as a number of seconds, greater than 0 and at most `maximum`."""

        def parse(text: str) -> float:
            try:
                found = float(text)
            except ValueError:
                found = -1.0
            if not 0 < found <= maximum:
                raise ValueError(f"it must be a number of seconds above 0, at most {maximum:g}")
            return found

        found = self.parse(name, parse)
        return default if found is None else found

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the value of an option as a boolean."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return the value of an option, which is one of the words in `allowed`. The case of letters is ignored."""

        def parse(text: str) -> str:
            word = text.strip().lower()
            if word not in allowed:
                raise ValueError(f"it must be one of {', '.join(allowed)}")
            return word

        return self.parse(name, parse) or default
