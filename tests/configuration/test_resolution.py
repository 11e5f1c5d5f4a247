import os
from pathlib import Path

import pytest

import oz
from docs.markdown_blocks import ROOT, blocks
from oz.configuration import DEFINITIONS, resolve, survey
from support.cases import each

GIVEN = {
    "bus": ("trading", "trading", "trading"),
    "name": ("pricing", "pricing", "pricing"),
    "connect": ("tcp://h:1,ipc:///run/x", '["tcp://h:1", "ipc:///run/x"]', ("tcp://h:1", "ipc:///run/x")),
    "bind": ("tcp://10.0.0.7:*", '"tcp://10.0.0.7:*"', ("tcp://10.0.0.7:*",)),
    "directory": ("/run/oz", "/run/oz", Path("/run/oz")),
}
"""For each setting: text of a variable, text in TOML (quotes are added to words), and value."""


def toml(name):
    text = GIVEN[name][1]
    return f"[node]\n{name} = {text if text[0] in '[0123456789' or text[0] == chr(34) else repr(text)}\n"


def test_without_anything_given_there_are_defaults():
    found = resolve()
    assert (found.bus, found.name) == ("default", None)
    assert found.connect == found.bind == ()
    assert found.directory == Path(f"/tmp/oz-{os.geteuid()}")
    assert found.sources == {definition.name: "default" for definition in DEFINITIONS}


def test_every_setting_is_tried_here():
    assert list(GIVEN) == [definition.name for definition in DEFINITIONS]


@pytest.mark.parametrize("name", GIVEN)
def test_an_argument_overrides_the_environment_which_overrides_the_file(name, write_file, monkeypatch):
    variable, _, value = GIVEN[name]
    path = write_file(toml(name))
    found = resolve()
    assert (getattr(found, name), found.sources[name]) == (value, f"file {path}")
    assert {source for item, source in found.sources.items() if item != name} == {"default"}
    monkeypatch.setenv(f"OZ_{name.upper()}", variable)
    found = resolve(**{name: None})
    assert (getattr(found, name), found.sources[name]) == (value, f"environment variable OZ_{name.upper()}")
    found = resolve(**{name: value})
    assert (getattr(found, name), found.sources[name]) == (value, "argument")


def test_an_empty_variable_is_as_good_as_none(monkeypatch, write_file):
    write_file('[node]\nconnect = "tcp://ns1:5756"\n')
    monkeypatch.setenv("OZ_CONNECT", "")
    assert resolve().connect == ("tcp://ns1:5756",)


@pytest.mark.parametrize("text", ["tcp://a:1,tcp://b:2", "tcp://a:1 tcp://b:2", " tcp://a:1 ,\n tcp://b:2, "])
def test_a_variable_lists_endpoints_with_commas_or_blanks(text, monkeypatch):
    monkeypatch.setenv("OZ_CONNECT", text)
    assert resolve().connect == ("tcp://a:1", "tcp://b:2")


def test_a_home_may_be_written_as_a_tilde(monkeypatch):
    # The directory of this test may be too long for sockets.
    monkeypatch.setenv("HOME", "/home/me")
    assert resolve(directory="~/oz").directory == Path("/home/me/oz")


def test_a_configuration_does_not_change():
    found = resolve(bus="trading")
    with pytest.raises(AttributeError, match="resolve"):
        found.bus = "other"
    with pytest.raises(TypeError):
        found.sources["bus"] = "me"
    assert repr(found) == "Configuration(bus='trading')"


def test_an_argument_that_no_setting_has_is_a_type_error():
    with pytest.raises(TypeError, match=r"'colour'.*bus, name"):
        resolve(colour="red")


BAD = [
    ("bus", ""),
    ("bus", "x" * 256),
    ("bus", "two\nlines"),
    ("bus", 7),
    ("bus", "a.>"),
    ("bus", "a b"),
    ("bus", "a/b"),
    ("name", "\udcff"),
    ("connect", "ns1:5756"),
    ("connect", "udp://ns1:5756"),
    ("connect", "tcp://ns1"),
    ("connect", "tcp://ns1:70000"),
    ("connect", "tcp://*:5756"),
    ("connect", "tcp://ns1:*"),
    ("connect", "tcp://a:1,tcp://b:2"),
    ("connect", {"tcp": 1}),
    ("connect", ["tcp://ns1:5756", 5]),
    ("connect", 5756),
    ("bind", [f"tcp://h:{port}" for port in range(17)]),
    ("bind", "ipc://"),
    ("bind", "ipc:///" + "x" * 255),
    ("connect", "tcp://h:0"),
    ("connect", "ipc://*"),
    ("directory", "run/oz"),
    ("directory", ""),
    ("directory", "/" + "x" * 80),
    ("directory", b"/run/oz"),
    ("directory", "/run/\0oz"),
]


@each(("name", "value"), BAD)
def test_an_invalid_value_is_refused_with_the_remedy(name, value):
    with pytest.raises(oz.ConfigurationError) as caught:
        resolve(**{name: value})
    error = caught.value
    assert isinstance(error, oz.OzError)
    assert isinstance(error, ValueError)
    assert (error.setting, error.source) == (name, "argument")
    assert error.value is value
    assert str(error).startswith(f"argument: {name} = ")
    assert "give" in error.rule or "write" in error.rule or "name" in error.rule
    assert len(str(error)) < 500


def test_an_error_names_file_key_value_and_remedy(write_file):
    path = write_file("[node]\nbus = 7\n")
    with pytest.raises(oz.ConfigurationError) as caught:
        resolve()
    assert (
        str(caught.value) == f"file {path}: bus = 7: give text of 1 to 255 bytes, without control characters"
    )


@pytest.mark.parametrize(("name", "text"), [("NAME", "a\nb"), ("DIRECTORY", "here")])
def test_an_error_names_the_variable(name, text, monkeypatch):
    monkeypatch.setenv(f"OZ_{name}", text)
    with pytest.raises(oz.ConfigurationError) as caught:
        resolve()
    assert f"environment variable OZ_{name}: {name.lower()} = {text!r}: give" in str(caught.value)


def test_an_invalid_setting_is_refused_even_if_an_argument_overrides_it(write_file):
    write_file("[node]\nbus = 7\n")
    with pytest.raises(oz.ConfigurationError, match="bus = 7"):
        resolve(bus="trading")


def test_a_survey_has_invalid_and_valid_settings(monkeypatch, write_file):
    path = write_file('[node]\nbind = 0\nbus = "trading"\ncolour = "red"\n')
    monkeypatch.setenv("OZ_DIRECTORY", "here")
    found = survey()
    settings = {setting.name: setting for setting in found.settings}
    assert (settings["bus"].value, settings["bind"].value) == ("trading", 0)
    assert settings["directory"].value == "here"
    assert [fault.setting for fault in found.faults] == ["colour", "bind", "directory"]
    first = found.candidates[0]
    assert (first.path, first.state) == (path, "wrong")


def test_a_variable_that_is_nearly_one_is_pointed_out(monkeypatch):
    monkeypatch.setenv("OZ_CONNECTS", "tcp://ns1:5756")
    monkeypatch.setenv("OZ_SOAK", "1")
    assert dict(survey().unused) == {"OZ_CONNECTS": "OZ_CONNECT"}


def test_the_page_shows_every_setting_with_its_default(write_file, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/no/such/directory")
    page = ROOT / "docs" / "configuration.md"
    example = next(block.text for block in blocks(page) if block.language == "toml")
    write_file(example.replace("# default: ", ""))
    found = resolve()
    assert "default" not in found.sources.values()
    for definition in DEFINITIONS:
        assert f"\n| `{definition.name}` |" in page.read_text("utf-8")
        assert definition.variable in page.read_text("utf-8")
    write_file(example)
    said = {name for name, source in resolve().sources.items() if source != "default"}
    assert said == {"bus", "connect"}
    defaults = resolve(bus="default", connect=[])
    for definition in DEFINITIONS:
        if f"# default: {definition.name} = " in example and definition.name not in ("name", "directory"):
            assert getattr(defaults, definition.name) == getattr(found, definition.name)
