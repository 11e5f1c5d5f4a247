"""The command `oz` from its first moment: Ctrl-C ends it in silence also while Python still loads the rest.

This is no part of the package, since Python imports all of a package before a module of it.
"""

import signal
from typing import NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # As it ends any other program. oz.cli.signals sees to it as soon as there is something to end in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> NoReturn:
    """Run the command, and end the process with its exit code."""
    from oz.cli import main as command

    command()
    raise SystemExit(0)
