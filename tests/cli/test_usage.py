"""Wrong arguments exit 2 at once, with a message that names the wrong value or the remedy."""

import shlex
from datetime import UTC, datetime

import pytest

from oz.journal import Writer
from support.cases import each

USAGE = [
    ("subscribe", "No such command 'subscribe'"),
    ("auth explain nobody md.x --file {permissions}", "nobody"),
    ("auth explain desk md..x --file {permissions}", "md..x"),
    ("auth explain desk md.x --action group --file {permissions}", "group"),
    ("bench --match 0", "--match"),
    ("bench --seconds 0", "--seconds"),
    ("doctor --require telepathy", "no feature has the name 'telepathy'"),
    ("explain a..b", "nats pattern 'a..b', position 2: "),
    ("explain", "Missing argument"),
    ("explain a --against nowhere", "'nowhere' is neither a file nor an endpoint"),
    ("explain a --against ipc://nobody --seconds nan", "--seconds"),
    ("forwarder", "give --leg twice or more"),
    ("forwarder --leg bus=a,colour=red --leg bus=b", "'colour'"),
    (
        "forwarder --frontend tcp://*:*",
        "give frontend= or connect= for publishers, and backend= for subscribers",
    ),
    ("gateway --receive epgm://eth0;239.192.1.1:5555", "give subscribers="),
    ("journal export {journal} ''", "the path is empty; is a variable of the shell unset?"),
    ("journal export {journal} --start yesterday", "such as 2026-03-01T09:00 or -1h"),
    ("journal export {journal} --end 1h", "'1h' is neither an offset nor a time"),
    ("journal export {journal} --start=-5", "'-5' is neither an offset nor a time"),
    ("journal export {journal} --start=-99999999999w", "neither an offset nor a time"),
    ("journal export {journal} --start 3 --end 1", "the range ends before it begins"),
    ("journal export {journal} out.xls", "out.xls': the name of FILE ends with .parquet, .csv or .jsonl"),
    ("keys new me --key-directory ''", "the path is empty; is a variable of the shell unset?"),
    ("multicast plan --rate 0 --size 200 --outage 2", "rate is from"),
    ("multicast plan --rate 5 --size 200 --outage 2 --mtu 1", "mtu is from"),
    ("nameserver --bind nowhere", "nowhere"),
    ("nameserver --bind tcp://127.0.0.1:* --name " + "n" * 513, "512"),
    ("peers --bus a/b", "--bus: 'a/b': "),
    ("pub a b --bind tcp://nowhere", "nowhere"),
    ("pub a b --connect gopher://a:1", "gopher"),
    ("pub a b --connect udp://127.0.0.1:1 --bus default", "udp"),
    ("pub a.* b", "a.*"),
    ("pub a --count 2", "--count"),
    ("pub - payload", "payload"),
    ("pub a b --header name", "name"),
    ("pub a b --header =value", "=value"),
    ("pub a b --header a=1 --header a=2", "a"),
    ("pub a b --payload json", "--bus"),
    ("pub a { --payload json --bus default", "not JSON"),
    ("pub a --json", "--json"),
    ("pub - --json --bus b", "--json"),
    ("pub - payload --json", "payloads come from stdin"),
    ("record --journal x", "PATTERN"),
    ("record a..b --journal x", "a..b"),
    ("record a --journal x --segment-bytes 0", "64M"),
    ("record a --journal x --segment-bytes " + "9" * 5_000, "--segment-bytes"),
    ("record a --journal x --retain-bytes '5 GB'", "64M"),
    ("record a --journal x --sync often", "batch"),
    ("record a --journal x --dedupe --filtering prefix", "--filtering prefix"),
    ("record a --journal x --group g --filtering prefix", "--filtering prefix"),
    ("record a --journal x --dedupe --bus b", "--bus"),
    ("record a --journal x --bus b --connect udp://127.0.0.1:9", "--connect"),
    ("replay {journal} --speed 0", "max"),
    ("replay {journal} --speed 1e-300", "--speed"),
    ("replay {journal} --end=-2h --start=-1h", "the range ends before it begins"),
    ("reply a", "--echo"),
    ("reply a --echo --text x", "--text"),
    ("reply a --echo --concurrency 0", "--concurrency"),
    ("reply _INBOX.> --echo", "_INBOX.>"),
    ("reply a --text x --payload json", "JSON"),
    ("request a.*", "a.*"),
    ("request a --json --raw", "--raw"),
    ("request a --count 0", "--count"),
    ("sub a --format {nothing}", "unknown field {nothing}; the fields are subject, payload"),
    ("sub a --format {subject", "write {{ for a brace"),
    ("sub a --format x --json", "--format writes the whole line"),
    ("request a --directory relative", "relative"),
    ("spark sort", "sort"),
    ("spark archive journal lake --conf memory=4g", "write spark.executor.memory=4g"),
    ("spark report ''", "the path is empty; is a variable of the shell unset?"),
    ("sub a..b", "a..b"),
    ("sub a --connect udp://127.0.0.1:5555", "udp"),
    ("sub a --filtering nobody", "nobody"),
    ("sub a --filtering prefix --group workers", "--group: 'workers': it needs a link"),
    ("sub a --filtering prefix --last-value", "--last-value: True: it needs a link"),
    ("sub a --filtering prefix --bus default", "--bus"),
    ("sub a --policy failover", "give group="),
    ("sub a --group ''", "--group"),
    ("sub a --group " + "x" * 300, "group"),
    ("sub a --group g --policy random", "random"),
    ("sub a --payload json", "--bus"),
    ("sub a --name '' --bus default", "name"),
    ("sub a.> --bus", "--bus"),
    *(
        (f"sub --bus '{name}' b.>", "letters, digits, _ and -")
        for name in ("a.>", "b*", "a.b", "a b", "tcp:x")
    ),
    ("translate a --to none", "none"),
    ("translate regex:a.* --to nats", "wildcards"),
]


@pytest.fixture
def places(tmp_path, directory, monkeypatch):
    """Paths of a journal and of a file of permissions; the working directory is another one."""
    with Writer(tmp_path / "journal") as writer:
        writer.append([{"subject": "a", "payload": b"", "time": datetime(2026, 3, 1, tzinfo=UTC)}] * 5)
    permissions = tmp_path / "permissions.toml"
    permissions.write_text('[users.desk]\nkey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"\n')
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return {"journal": tmp_path / "journal", "permissions": permissions}


@each(("line", "word"), USAGE)
def test_wrong_arguments_exit_2_with_a_reason(oz, places, line, word):
    words = [item.replace("{journal}", str(places["journal"])) for item in shlex.split(line)]
    result = oz(*(item.replace("{permissions}", str(places["permissions"])) for item in words))
    assert result.exit_code == 2, result.output[-2000:]
    assert word in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert "ready" not in result.stderr


@each(
    ("arguments", "code"),
    [
        (("sub", "a", "--group", b"\xff", "--timeout", "0.1", "--connect", "ipc://nobody"), 2),
        (("explain", b"\xff"), 2),
        (("pub", b"\xff", "b"), 2),
        (("pub", "a", "b", "--header", b"a=\xff"), 2),
        (("journal", "info", b"\xff"), 1),
        (("peers", "--bus", b"\xff"), 2),
        (("doctor", "--require", b"\xff"), 2),
        ((b"\xff",), 2),
    ],
)
def test_arguments_that_are_not_utf8_are_refused_without_a_traceback(oz, arguments, code):
    assert oz(*arguments).exit_code == code


@pytest.mark.usefixtures("places")
@each("command", ["ls", "info", "verify", "repair", "export", None])
def test_directory_without_a_journal_is_an_error_of_one_line(oz, command):
    result = oz("journal", command, "none") if command else oz("replay", "none")
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "there is no journal here" in line


@each("endpoint", ["tcp://", "tcp://127.0.0.1:5555", "epgm://", "epgm://eth0;192.0.2.1:5555", "nonsense"])
def test_gateway_names_an_endpoint_that_is_not_multicast(oz, endpoint):
    result = oz("gateway", "--receive", endpoint, "--bind", "tcp://127.0.0.1:*")
    assert result.exit_code != 0
    assert repr(endpoint) in result.stderr
    assert "pip install" not in result.stderr
