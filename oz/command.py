"""Entry point of the command `oz`.

The imports of `oz.cli` take up to a second on a busy machine. A signal during this time must end the process without a
traceback, with the same exit code as later. Therefore this module imports only the standard library at first.
"""

import os
import signal
import sys
from typing import Any

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def _end(number: int, _frame: object) -> None:
    os._exit(_EXIT_CODES[signal.Signals(number)])


def main(**options: Any) -> None:
    """Run the command `oz` with the arguments of the process. `click.Command.main` documents `options`."""
    for number in _EXIT_CODES:
        # An ignored signal stays ignored. A shell without job control starts background commands with SIGINT ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from oz.cli import main as run

    sys.exit(run(**options))
