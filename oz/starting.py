"""The first moments of the command `oz`: Ctrl-C ends it in silence also while Python still loads it.

Python imports a package before any module of it, so this is the first thing that the package imports, for the
installed command as for `python -m oz`. Programs that import oz keep what they have.
"""

import os
import signal
import sys

_NAMES = ("oz", "oz.exe", "oz-script.py")
_CALL = b"from oz.cli import main"
_LONGEST_SCRIPT = 4096


def is_command(arguments: list[str], original: list[str]) -> bool:
    """Tell whether this process is the command `oz`.

    Args:
        arguments: `sys.argv`. Its first is the script, or `-m` as long as Python looks for a package to run.
        original: `sys.orig_argv`.
    """
    if arguments[:1] == ["-m"]:
        return len(arguments) <= len(original) and original[-len(arguments)] in ("oz", "-moz")
    if not arguments or os.path.basename(arguments[0]) not in _NAMES:
        return False
    try:
        # Somebody else may call a program so, and go by KeyboardInterrupt.
        with open(arguments[0], "rb") as script:
            return _CALL in script.read(_LONGEST_SCRIPT)
    except OSError:
        return False


if signal.getsignal(signal.SIGINT) is signal.default_int_handler and is_command(
    getattr(sys, "argv", []), sys.orig_argv
):
    # As it ends any other program. oz.cli.signals takes over as soon as there is something to end in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
