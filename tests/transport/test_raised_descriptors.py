"""Commands that serve others ask for more file descriptors."""

import sys

import pytest

from support.scripts import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")

PROGRAM = """
import resource, sys
from oz.system import raise_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
raise_descriptors(int(sys.argv[1]))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("wanted", "has"), [(200, 200), (65_536, 300), (50, 100)])
def test_a_command_gets_what_it_wants_as_far_as_the_system_lets_it_and_never_less(wanted, has):
    assert run("-c", PROGRAM, wanted) == f"{has} 300\n"
