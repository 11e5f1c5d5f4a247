"""The file of permissions. Each fault has its line, and rules without effect are warnings."""

import os
import sys
from textwrap import dedent

import pytest

import oz
from oz import configuration
from oz.configuration.permission_file import MAX_FILE_SIZE, _Reader, read_permissions, survey_permissions
from oz.configuration.toml_lines import TomlLines
from oz.security.permissions import Responses
from support.cases import each

KEY, OTHER = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"

GOOD = f"""
    default = "deny"

    [users.desk]
    key = "{KEY}"
    roles = ["reader"]
    publish = {{ allow = ["desk.>"] }}

    [users."night shift"]
    keys = ["{OTHER}"]
    roles = ["reader"]

    [roles.reader]
    subscribe.allow = ["md.>", "mqtt:sensor/+/temp"]
    subscribe.deny = [
        "md.secret.>",
    ]
    group = {{ allow = ["md.> workers-*"] }}
    reply = {{ allow_responses = {{ count = 2, seconds = 1.5 }} }}
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "permissions.toml"
        path.write_text(dedent(text).lstrip("\n"), "utf-8")
        return path

    return write


def test_users_have_their_own_rules_and_those_of_their_roles(written):
    found = read_permissions(written(GOOD))
    desk = found.users["desk"]
    assert (found.default, desk.keys, desk.roles) == ("deny", (KEY,), ("reader",))
    assert [(rule.action, rule.effect, rule.text) for rule in desk.rules] == [
        ("publish", "allow", "desk.>"),
        ("subscribe", "allow", "md.>"),
        ("subscribe", "allow", "mqtt:sensor/+/temp"),
        ("subscribe", "deny", "md.secret.>"),
        ("group", "allow", "md.> workers-*"),
    ]
    assert desk.responses == Responses(2, 1.5)
    assert found.users["night shift"].keys == (OTHER,)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"deny"\n', '"refuse"\n', 1, "it is one of allow, deny"),
        ('default = "deny"', 'dialect = "natz"', 1, "it is one of nats"),
        ("[users.desk]", "[user.desk]", 3, "did you mean users?"),
        (KEY, "short", 4, "a public key has 40 characters of Z85"),
        (f'key = "{KEY}"', "", 3, "give the user a key"),
        (KEY, OTHER, 8, "the user desk has this key too"),
        ('roles = ["reader"]', 'roles = ["raeder"]', 5, "did you mean reader?"),
        ('roles = ["reader"]', 'roles = "reader"', 5, "write a list of texts"),
        ('"desk.>"', '"desk..x"', 6, "position 5"),
        ('{ allow = ["desk.>"] }', '["desk.>"]', 6, "write publish = {"),
        ("allow = [\"desk", "alow = [\"desk", 6, "did you mean allow?"),
        ('"md.secret.>"', '"md.>.secret"', 15, "position"),
        ('"md.secret.>"', '"natz:md.secret.>"', 15, "did you mean nats?"),
        ('"md.secret.>"', '"NATS:md.secret.>"', 15, "write nats:NATS:md.secret.>"),
        ("count = 2", "count = 0", 18, "numbers above 0"),
        ("count = 2", "count = true", 18, "numbers above 0"),
        ("seconds = 1.5", "second = 1.5", 18, "did you mean seconds?"),
        ("group = {", "groop = {", 17, "did you mean group?"),
    ],
)  # fmt: skip
def test_an_invalid_entry_is_refused_with_its_line(written, old, new, line, said):
    path = written(dedent(GOOD).lstrip("\n").replace(old, new, 1))
    with pytest.raises(oz.ConfigurationError) as raised:
        read_permissions(path)
    assert raised.value.source == f"file {path}, line {line}"
    assert said in str(raised.value)


def test_all_faults_are_found_at_once_each_once_and_in_the_order_of_their_lines(written):
    text = '[roles.y]\nsubscribe = 1\n[users.a]\nkey = 1\nroles = ["x"]\n[users.b]\nkeys = []\n'
    found = survey_permissions(written(text))
    assert found.permissions is None
    assert [fault.source.rpartition(" ")[2] for fault in found.faults] == ["2", "4", "5", "6"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [", "not TOML"),
        ("a = 1\na = 2", "not TOML"),
        ("\xff", "not TOML"),
        ("x" * (MAX_FILE_SIZE + 1), "larger than"),
        ("users = 1", "write tables: [users.NAME]"),
        ("[users]\ndesk = 1", "write it as a table: [users.desk]"),
    ],
)
def test_another_file_than_a_permission_file_is_refused(tmp_path, text, said):
    path = tmp_path / "permissions.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(oz.ConfigurationError) as raised:
        read_permissions(path)
    assert str(path) in str(raised.value)
    assert said in str(raised.value)


def test_a_file_that_all_users_may_write_is_refused(written):
    path = written(GOOD)
    path.chmod(0o666)
    with pytest.raises(oz.ConfigurationError, match="all users can write it: chmod o-w"):
        read_permissions(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(oz.ConfigurationError, match="pipe"):
        read_permissions(tmp_path / "pipe")


def test_an_entry_without_effect_is_a_warning(written):
    text = dedent(GOOD).replace('["desk.>"] }', '["desk.a"], deny = ["desk.>"] }') + "\n[roles.idle]\n"
    found = survey_permissions(written(text))
    assert found.permissions is not None
    assert found.warnings == (
        "users.desk.publish.allow[0], line 6: allow publish 'desk.a' has no effect: "
        "users.desk.publish.deny[0], line 6: deny publish 'desk.>'",
        "roles.idle, line 20: no user has this role",
    )


@each(
    ("lines", "is_idle"),
    [
        ("subscribe.deny = ['a']", True),
        ("publish.allow = ['a']\nsubscribe.deny = ['a']", True),
        ("subscribe.allow = ['>']\nsubscribe.deny = ['a']", False),
        ("group.allow = ['>']\nsubscribe.deny = ['a']", False),
        ("reply.allow_responses = true\nreply.deny = ['a']", False),
        ("roles = ['all']\nsubscribe.deny = ['a']\n[roles.all]\nsubscribe.allow = ['>']", False),
    ],
)
def test_a_list_of_denials_without_permissions_is_a_warning(written, lines, is_idle):
    """In NATS, such a list allows all other subjects."""
    text = f"[users.desk]\nkey = '{KEY}'\n{lines}\n"
    assert (
        any("nothing is allowed" in warning for warning in survey_permissions(written(text)).warnings)
        is is_idle
    )
    assert not survey_permissions(written(f"default = 'allow'\n{text}")).warnings


def test_the_dialect_of_the_file_is_that_of_patterns_that_name_none(written):
    found = read_permissions(written('dialect = "redis"\n' + dedent(GOOD).replace("desk.>", "desk.?")))
    [rule] = found.users["desk"].rules_of("publish", "allow")
    assert rule.pattern.matches("desk.x")
    assert rule.pattern.dialect == "redis"


def steps_of(work):
    """Count what Python does in a call, in the modules of configuration."""
    counted = 0

    def step(frame, event, _):
        nonlocal counted
        if not frame.f_code.co_filename.startswith(os.path.dirname(configuration.__file__)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def finding_lines(count):
    tables = (f"[users.u{item}]\npublish = {{ allow = ['md.{item}.>'] }}\n" for item in range(count))
    lines = TomlLines("".join(tables))
    return lambda: [
        lines.line_of(("users", f"u{item}", "publish", "allow", 0), f"md.{item}.>") for item in range(count)
    ]


def looking_for_idle_rules(count):
    allowed, denied = ([f"{word}{item}.>" for item in range(count)] for word in "ab")
    reader = _Reader("", {}, TomlLines(""))
    rules = [*reader._read_rules((), {"allow": allowed, "deny": denied}, "publish")]
    return lambda: reader._warn_of_covered_rules(tuple(rules))


@each("prepare", [finding_lines, looking_for_idle_rules])
def test_four_times_as_large_a_file_takes_four_times_as_long(prepare):
    """A publisher reads it anew between two messages: one of 12,000 users held it up for a minute."""
    assert steps_of(prepare(200)) < 6 * steps_of(prepare(50))
