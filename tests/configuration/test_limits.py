import math
import tempfile

import pytest

import oz
from oz.configuration import resolve, resolve_limits, survey


def test_a_file_sets_some_limits(write_file):
    path = write_file("[limits]\npatterns = 7\npattern_time = inf\nhandshake = 0.5\n")
    assert resolve().limits == resolve_limits() == oz.Limits(patterns=7, pattern_time=math.inf, handshake=0.5)
    assert [(limit.name, limit.source) for limit in survey().limits] == [
        ("patterns", f"file {path}"),
        ("pattern_time", f"file {path}"),
        ("handshake", f"file {path}"),
    ]
    assert "limits=Limits(patterns=7" in repr(resolve())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("paterns = 5", "line 4: paterns = 5: no limit has this name; did you mean patterns?"),
        ('"zzz" = 5', "line 4: zzz = 5: no limit has this name; docs/limits.md lists them"),
        ("patterns = 0", "line 4: patterns = 0: it is a whole number above 0"),
        ("patterns = nan", "line 4: patterns = nan: it is a whole number above 0"),
        ("patterns = true", "line 4: patterns = True: it is a whole number above 0"),
        ('patterns = "many"', "line 4: patterns = 'many': it is a whole number above 0"),
        ("patterns = inf", "line 4: patterns = inf: it is a whole number above 0"),
        ("handshake = nan", "line 4: handshake = nan: it is a number above 0"),
        ("patterns.most = 5", "line 4: patterns = {'most': 5}: it is a whole number above 0"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_line(line, said, write_file):
    write_file(f'[node]\nbus = "b" # [limits]\n[ limits ] # of peers\n{line}\n')
    for find in (resolve, resolve_limits):
        with pytest.raises(oz.ConfigurationError) as refused:
            find()
        assert said in str(refused.value)


def test_limits_are_a_table(write_file):
    write_file("limits = 5\n")
    with pytest.raises(oz.ConfigurationError, match=r"limits = 5: write limits below a line \[limits\]"):
        resolve_limits()


def test_settings_that_are_wrong_are_no_fault_of_the_limits(write_file):
    write_file('[node]\nthreads = "many"\nthread = 1\n[limits]\npatterns = 7\n')
    assert resolve_limits().patterns == 7
    with pytest.raises(oz.ConfigurationError):
        resolve()


def test_services_refuse_a_file_that_does_not_parse(write_file):
    write_file("[limits\n")
    with pytest.raises(oz.ConfigurationError, match="not TOML"):
        resolve_limits()


def test_a_node_uses_the_limits_of_the_file_unless_it_has_its_own(write_file, monkeypatch):
    write_file("[limits]\nmessage_bytes = 100\n")
    own = oz.NodeOptions(limits=oz.Limits(message_bytes=200))
    # A short path, because sockets are in it.
    with tempfile.TemporaryDirectory(prefix="oz", dir="/tmp") as directory:
        monkeypatch.setenv("OZ_DIRECTORY", directory)
        with oz.Node(codec=None) as node, pytest.raises(ValueError, match="100"):
            node.publish("a", bytes(101))
        with oz.Node(codec=None, options=own) as node:
            node.publish("a", bytes(101))
