import shutil

import pytest

from oz.journal import Journal, Writer
from support.journals import content


@pytest.fixture
def written(tmp_path):
    """Write groups of records; return the directory, as a kill would leave it, and its records by offset."""

    def write(*sizes, seal=False, **options):
        live, directory = tmp_path / "live", tmp_path / "journal"
        rows = {}
        with Writer(live, **options) as writer:
            for group, size in enumerate(sizes):
                records = [content(group, at) for at in range(size)]
                rows |= dict(enumerate(records, len(rows)))
                assert writer.append(records) == len(rows)
            if not seal:
                shutil.copytree(live, directory)
        if seal:
            shutil.copytree(live, directory)
        assert Journal(directory).end_offset == len(rows)
        return directory, rows

    return write
