import json
import os
from textwrap import dedent

import pytest

from support.cases import each

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"

TEXT = f"""
    [users.desk]
    key = "{KEY}"
    roles = ["reader"]

    [roles.reader]
    subscribe = {{ allow = ["md.>"], deny = ["md.secret.>"] }}
    group = {{ allow = ["md.> work-*"] }}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "permissions.toml"
    path.write_text(dedent(TEXT).lstrip("\n"))
    return str(path)


def test_a_refusal_names_the_rule_its_line_and_a_subject(oz, file):
    words = ("auth", "explain", "desk", "redis:md.*", "--action", "subscribe", "--file", file)
    result = oz(*words)
    assert result.exit_code == 1
    assert result.stdout == (
        "subscribe  denied  roles.reader.subscribe.deny[0], line 6: deny subscribe 'md.secret.>'; "
        "'md.*' also matches 'md.secret.a'\n"
    )
    data = json.loads(oz(*words, "--json").stdout)["subscribe"]
    assert data["rule"] == {"text": "md.secret.>", "place": "roles.reader.subscribe.deny[0], line 6"}
    assert data["subject"] == "md.secret.a"


def test_a_grant_names_the_rule_and_a_key_stands_for_its_user(oz, file):
    result = oz("auth", "explain", KEY, "md.eu.>", "--action", "subscribe", "--file", file)
    assert result.exit_code == 0
    assert result.stdout.split()[:2] == ["subscribe", "granted"]


def test_without_a_file_it_uses_the_configured_security(oz, file, tmp_path, monkeypatch):
    monkeypatch.setenv("OZ_CONFIG", os.devnull)
    monkeypatch.delenv("OZ_SECURITY", raising=False)
    asked = "auth", "explain", "desk", "md.eu.>", "--action", "subscribe"
    unsaid = oz(*asked)
    assert unsaid.exit_code == 2
    assert "give --file: neither OZ_SECURITY nor the configuration file names permissions" in unsaid.stderr
    assert oz("keys", "new", "desk", "--key-directory", str(tmp_path / "keys")).exit_code == 0
    (tmp_path / "trusted").mkdir()
    named = tmp_path / "security.toml"
    named.write_text(
        f"[security]\nkey = 'keys/desk.key_secret'\ntrusted = 'trusted'\npermissions = '{file}'\n"
    )
    monkeypatch.setenv("OZ_SECURITY", str(named))
    assert oz(*asked).stdout.split()[:2] == ["subscribe", "granted"]


def test_without_an_action_all_are_shown(oz, file):
    result = oz("auth", "explain", "desk", "md.x", "--file", file)
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["publish", "denied"],
        ["subscribe", "granted"],
        ["request", "denied"],
        ["reply", "denied"],
        ["history", "denied"],
    ]


@pytest.mark.parametrize(("rule", "exit_code"), [("", 0), (', deny = ["svc.secret.>"]', 1)])
def test_replies_to_requests_that_came_are_shown_with_how_many_and_for_how_long(oz, file, rule, exit_code):
    with open(file, "a") as more:
        more.write(f"reply = {{ allow_responses = {{ count = 2, seconds = 1.5 }}{rule} }}\n")
    result = oz("auth", "explain", "desk", "svc.>", "--action", "reply", "--file", file)
    assert result.exit_code == exit_code
    if not exit_code:
        assert "desk has allow_responses: 2 replies to each received request, within 1.5 s" in result.stdout
    table = oz("auth", "matrix", file).stdout
    assert "reply" in table.splitlines()[0]
    assert "(2 to each request, for 1.5 s)" in table


@pytest.mark.parametrize(("group", "granted"), [("work-1", True), ("others", False)])
def test_a_group_has_a_name(oz, file, group, granted):
    result = oz(
        "auth", "explain", "desk", "md.x", "--group", group, "--action", "group", "--json", "--file", file
    )
    assert result.exit_code == int(not granted)
    assert json.loads(result.stdout)["group"]["granted"] is granted


def test_check_counts_users_and_rules_and_lists_all_faults(oz, file, tmp_path):
    result = oz("auth", "check", file)
    assert (result.exit_code, result.stdout) == (0, f"{file}: users: 1; rules: 3; default: deny\n")
    shown = json.loads(oz("auth", "check", file, "--json").stdout)
    assert shown == {"ok": True, "faults": [], "warnings": []}
    path = tmp_path / "bad.toml"
    path.write_text('default = "no"\n[users.a]\nkey = "x"\n')
    result = oz("auth", "check", str(path))
    assert result.exit_code == 1
    faults = [line.split(": ")[1] for line in result.stderr.splitlines()]
    assert faults == [f"file {path}, line 1", f"file {path}, line 3"]


def test_matrix_prints_the_rights_of_each_user(oz, file):
    result = oz("auth", "matrix", file)
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["user", "subscribe", "group"],
        ["desk", "md.>", "-md.secret.>", "md.>", "work-*"],
    ]
    [desk] = json.loads(oz("auth", "matrix", file, "--json").stdout)
    assert desk["rules"]["subscribe"] == {"allow": ["md.>"], "deny": ["md.secret.>"]}


@pytest.mark.parametrize("command", [("explain", "desk", "md.x", "--file"), ("check",), ("matrix",)])
def test_each_command_warns_of_rules_without_effect(oz, file, command):
    with open(file, "a") as more:
        more.write('history = { allow = ["md.>"] }\n')
    result = oz("auth", *command, file)
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "roles.reader.history, line 8: rules for history have no effect yet" in result.stderr


@each(("subject", "is_kept"), [("_INBOX.x", True), ("_OZ.NAMING.>", True), ("md.>", False), (">", False)])
def test_reserved_subjects_are_a_warning(oz, file, subject, is_kept):
    """Nodes reserve these subjects, so that the rights of sockets do not hold for nodes."""
    result = oz("auth", "explain", "desk", subject, "--file", file)
    assert ("belong to nodes" in result.stderr) is is_kept
