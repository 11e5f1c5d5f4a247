import shutil

import pytest

from oz.journal import Journal, Writer
from support.journal_damage import note

SMALL = 20_000  # bytes: a segment of some hundred records


@pytest.fixture
def journal(tmp_path):
    """Write lists of records, each as one append; the journal's directory."""

    def write(*appends, **options):
        directory = tmp_path / "journal"
        # What is of interest is a journal as it is while it is written.
        with Writer(directory, **{"seal_on_close": False, **options}) as writer:
            for records in appends:
                writer.append(records)
        return Journal(directory)

    return write


@pytest.fixture(scope="session")
def written_once(tmp_path_factory):
    directory = tmp_path_factory.mktemp("many") / "journal"
    with Writer(directory, segment_bytes=SMALL, seal_on_close=False) as writer:
        for first in range(0, 3000, 100):
            writer.append(numbered(first, 100))
    return directory


@pytest.fixture
def many(written_once, tmp_path):
    """A journal of 3,000 records in several segments: `a.0`, `b.1`, `c.2`, `a.3` and so on."""
    made = Journal(shutil.copytree(written_once, tmp_path / "journal"))
    note(made, 3000)
    return made


def numbered(first, count):
    return [(f"{'abc'[at % 3]}.{at}", b"%d" % at) for at in range(first, first + count)]
