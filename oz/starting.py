"""What `python -m oz` does before all else, as the module `oz_command` does for the command `oz`.

Python imports the whole package before oz/__main__.py, so this is the first chance.
"""

import signal
import sys


def is_module_run(name: str, arguments: list[str], original: list[str]) -> bool:
    """Tell whether Python is about to run a package with its option `-m`.

    Args:
        name: of the package.
        arguments: `sys.argv`; its first is `-m` as long as Python looks for the package.
        original: `sys.orig_argv`.
    """
    if arguments[:1] != ["-m"] or len(arguments) > len(original):
        return False
    return original[-len(arguments)] in (name, f"-m{name}")


if (
    is_module_run("oz", getattr(sys, "argv", []), sys.orig_argv)
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    # Ctrl-C ends it in silence from here on, until oz.cli.signals has something to end in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
