"""Run of a world with one seed."""

from __future__ import annotations

import traceback
from unittest.mock import patch

from oz.transport import descriptors
from simulation.ledger import Violation


def run(seed, kind, mechanisms=None, faults=None, actors=None):
    """Run a world with one seed; return the violation, or None."""
    try:
        # Sockets of a run need no file descriptor, and counting free descriptors needs a thread.
        with (
            patch.object(descriptors, "need", lambda count, purpose: None),
            patch.object(descriptors, "need_for_node", lambda: None),
        ):
            kind(seed, mechanisms, faults, actors).run()
    except Violation as violation:
        return violation
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} in {place.name}"
        return Violation(f"{kind}, line {place.lineno} of {place.filename}: {error}", kind)
    return None
