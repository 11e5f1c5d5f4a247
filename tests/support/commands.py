"""Commands of oz that are run in the test's own process."""

import inspect

from click.testing import CliRunner


def command_runner():
    """Return a runner that keeps standard error apart, which click before 8.2 does when it is told to."""
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(mix_stderr=False) if mixes else CliRunner()
