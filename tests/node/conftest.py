"""Short directories: the path of a socket has 107 bytes at most."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def short_directory():
    path = Path(tempfile.mkdtemp(prefix="oz-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
