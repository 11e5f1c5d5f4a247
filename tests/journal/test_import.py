import pytest

import oz
from oz.journal import Writer
from support import scripts


def test_without_pyarrow_the_line_to_install_is_said():
    script = (
        "import sys; sys.modules['pyarrow'] = None; import oz\n"
        "try: import oz.journal\n"
        "except oz.JournalMissing as error: print(error, isinstance(error, ImportError))"
    )
    said = scripts.run("-c", script)
    assert (
        said
        == "oz.journal needs pyarrow, which is not installed; in a checkout: pip install '.[journal]' True\n"
    )


def test_import_oz_and_its_command_load_no_pyarrow():
    script = "import sys, oz, oz.cli; print('pyarrow' in sys.modules, 'oz.journal' in sys.modules)"
    assert scripts.run("-c", script) == "False False\n"


def test_the_journal_needs_no_sockets_or_zmq():
    script = (
        "import sys, types; package = types.ModuleType('oz'); package.__path__ = sys.argv[1:]\n"
        "sys.modules['oz'] = package; import oz.journal; print('zmq' in sys.modules)"
    )
    assert scripts.run("-c", script, *oz.__path__) == "False\n"


@pytest.mark.parametrize("error", [oz.JournalError, oz.JournalFull, oz.JournalMissing])
def test_errors_are_in_the_tree(error):
    assert issubclass(error, oz.OzError)
    assert issubclass(oz.JournalFull, oz.JournalError)


def test_a_journal_is_read_without_sockets_parquet_and_file_systems(tmp_path):
    with Writer(tmp_path / "journal") as writer:
        writer.append([("a.b", b"1")])
    script = (
        "import sys; from oz.cli import main; sys.argv[0] = 'oz'; main(standalone_mode=False)\n"
        "unneeded = ('oz.sync', 'oz.transport', 'pyarrow.parquet', 'pyarrow.fs', 'rich')\n"
        "print([name for name in unneeded if name in sys.modules])"
    )
    arguments = ("journal", "export", tmp_path / "journal", "--subject", "a.*")
    written = scripts.run("-c", script, *arguments).splitlines()
    assert len(written) == 2
    assert written[1] == "[]"
