"""Names of options, and what is said of those that there are not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from oz.errors import OptionError


def refuse_unknown(given: Iterable[str], names: Sequence[str], foreign: Mapping[str, str], said: str) -> None:
    """Refuse options that there are not, with the one that was probably meant.

    Args:
        given: names in lower case, as Spark hands them over.
        names: those that there are, as they are written.
        foreign: what others call something, in lower case, and what it is called here.
        said: how the error begins.

    Raises:
        OptionError: there is no such option.
    """
    known = {name.lower(): name for name in names}
    for key in given:
        if key in known:
            continue
        # With a dot they are another connector's, and like none of these.
        similar = [] if "." in key else difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = foreign.get(key) or (known[similar[0]] if similar else None)
        meant = f"did you mean {hint}? " if hint else ""
        raise OptionError(key, None, f"{said}; {meant}There are {', '.join(names)}")
