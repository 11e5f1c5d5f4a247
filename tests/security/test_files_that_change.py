"""Files of keys and permissions that change, or that others may: nothing wrong leaves anything open."""

import os
from pathlib import Path

import pytest
import zmq

import oz
from oz.transport.security import credentials_of, resolve_security
from support.keyring import Keyring
from support.waiting import until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "feed", "desk")
    made.permit(desk='subscribe = { allow = ["md.>"] }')
    return made


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_a_trusted_certificate_that_anybody_may_write_is_refused(ring):
    (ring.trusted / "desk.key").chmod(0o666)
    with pytest.raises(oz.ConfigurationError, match="chmod o-w"):
        ring.security("feed")


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_a_file_that_chooses_keys_and_that_anybody_may_write_is_refused(ring, tmp_path, monkeypatch):
    ring.configure("feed")
    path = Path(ring.file("feed"))
    assert oz.Security.from_file(path).public_key == ring.public("feed")
    path.chmod(0o666)
    with pytest.raises(oz.ConfigurationError, match="chmod o-w"):
        oz.Security.from_file(path)
    monkeypatch.setenv("OZ_CONFIG", str(path))
    with pytest.raises(oz.ConfigurationError, match="all users can write it"):
        resolve_security()
    with pytest.raises(oz.ConfigurationError, match="all users can write it"):
        oz.Node(options=oz.NodeOptions(directory=tmp_path))


def test_what_has_no_effect_is_logged_when_the_file_is_read(ring, caplog):
    ring.permit(desk="history = { deny = ['orders.>'] }")
    ring.security("feed", permissions=True)
    [said] = [record.getMessage() for record in caplog.records if record.name == "oz.security"]
    assert "users.desk.history" in said
    assert "have no effect yet" in said


@pytest.mark.skipif(os.name != "posix", reason="directories are opened as files are on POSIX")
def test_a_directory_in_place_of_a_certificate_is_refused_by_name(ring):
    (ring.trusted / "more.key").mkdir()
    with pytest.raises(oz.ConfigurationError, match=r"more\.key"):
        ring.security("feed")


def test_a_key_that_is_removed_is_trusted_no_more_though_another_file_makes_no_sense(ring):
    found = credentials_of(ring.security("feed"))
    ring.make("more")
    (ring.trusted / "more.key").write_text("# half of it")
    ring.distrust("desk")
    until(lambda: not found.admits(ring.public("desk"), "::1"))
    assert ring.public("feed") in found.trusted


def test_relative_paths_stay_what_they_were_when_a_program_goes_elsewhere(ring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [item.relative_to(tmp_path) for item in (ring.path("feed"), ring.trusted, ring.permissions)]
    found = credentials_of(oz.Security(paths[0], trusted=paths[1], permissions=paths[2]))
    other = tmp_path / "elsewhere"
    (other / "trusted").mkdir(parents=True)
    monkeypatch.chdir(other)
    assert ring.public("desk") in found.trusted
    ring.distrust("desk")
    until(lambda: ring.public("desk") not in found.trusted)
    assert ring.public("feed") in found.trusted


def test_a_public_certificate_in_place_of_the_secret_one_is_named_as_that(ring):
    with pytest.raises(oz.ConfigurationError, match=r"public certificate; feed\.key_secret beside it"):
        oz.Security(ring.path("feed").with_suffix(".key"), trusted=ring.trusted)


def test_a_directory_that_is_gone_for_a_moment_takes_nobody_out(ring):
    found = credentials_of(ring.security("feed"))
    before = dict(found.trusted)
    ring.trusted.rename(ring.trusted.with_name("elsewhere"))
    found._trusted._checked_at = 0.0
    assert dict(found.trusted) == before


@pytest.mark.skipif(os.name != "posix", reason="links need no rights on POSIX")
def test_a_link_that_leads_nowhere_hides_no_key_that_is_removed(ring):
    """An editor's lock is such a link."""
    found = ring.security("feed")
    (ring.trusted / ".#desk").symlink_to("user@host:1234")
    ring.make("late")
    ring.trust("late")
    until(lambda: ring.public("late") in found.trusted)
    ring.distrust("desk")
    ring.distrust("late")
    until(lambda: dict(found.trusted) == {ring.public("feed"): "feed"})


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_what_was_refused_for_its_mode_is_read_when_that_is_mended(ring, caplog):
    found = credentials_of(ring.security("feed", permissions=True))
    ring.make("late")
    ring.trust("late")
    ring.permit()
    for path, mode in ((ring.trusted, 0o777), (ring.permissions, 0o666)):
        path.chmod(mode)
    until(lambda: len(found.trusted) == 2 and found.permissions.users and caplog.text.count("chmod o-w") == 2)
    for path, mode in ((ring.trusted, 0o755), (ring.permissions, 0o644)):
        path.chmod(mode)
    until(lambda: ring.public("late") in found.trusted and not found.permissions.users)


def test_a_list_that_allows_nothing_is_refused_where_the_default_allows_everything(ring):
    ring.permit(default="allow", desk="subscribe = { allow = [] }")
    with pytest.raises(oz.ConfigurationError, match="an empty list leaves subscribe to the default"):
        ring.security("feed", permissions=True)
    ring.permit(desk="subscribe = { allow = [] }")
    ring.security("feed", permissions=True)
