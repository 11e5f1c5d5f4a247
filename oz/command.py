"""Entry point of the command `oz`.

The imports of a command take up to a second on a busy machine. A signal in this time ends the process with
the exit code of the command and without a traceback, so this module imports only the standard library.
"""

import os
import signal
import sys
from typing import Any

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def _end(number: int, _frame: object) -> None:
    os._exit(_EXIT_CODES[signal.Signals(number)])


def main(**options: Any) -> None:
    """Run the command `oz` with the arguments of the process; see `click.Command.main` for `options`."""
    for number in _EXIT_CODES:
        # A shell without job control starts background commands with SIGINT ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from oz.cli import main as run

    sys.exit(run(**options))
