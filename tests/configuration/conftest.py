"""An empty home and an empty working directory, without variables of oz."""

import os

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OZ_", "XDG_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def write_file(tmp_path):
    """Function that writes a TOML file, by default `./oz.toml`, and returns its path."""

    def write(text, name="work/oz.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def foreign_owner(monkeypatch):
    """Return a function that changes the owner of files. Without root it changes the user id of the process."""
    me = os.geteuid()

    def give(*paths):
        if me != 0:
            monkeypatch.setattr(os, "geteuid", lambda: me + 1)
            return me
        for path in paths:
            os.chown(path, 12_345, -1, follow_symlinks=False)
        return 12_345

    return give
