"""What sockets and nodes of each version said means the same to this one."""

import json
from collections import Counter
from pathlib import Path

import pytest

from support.cases import each
from support.wire_meanings import from_bytes, of_downward, of_multicast, of_upward

HERE = Path(__file__).parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/frames.jsonl"))
MEANING = {"up": of_upward, "down": of_downward, "multicast": of_multicast}


def recorded(version):
    return [json.loads(line) for line in (HERE / version / "frames.jsonl").read_text("ascii").splitlines()]


SCENES = [
    pytest.param(version, scene, id=f"{version} {scene}")
    for version in VERSIONS
    for scene in dict.fromkeys(row["scene"] for row in recorded(version))
]


@each(("version", "scene"), SCENES)
def test_what_was_said_means_the_same(version, scene):
    rows = [row for row in recorded(version) if row["scene"] == scene]
    assert {row["way"] for row in rows} == ({"multicast"} if scene == "multicast" else {"up", "down"})
    for row in rows:
        meaning = MEANING[row["way"]]([from_bytes(frame) for frame in row["frames"]])
        assert json.loads(json.dumps(meaning)) == row["means"], row["frames"]


def test_the_first_version_said_something_of_each_kind():
    found = Counter(kind for row in recorded("0.1.0") for kind in kinds_of(row))
    wanted = {"key", "asks", "answers", "plain", "control", "body", "large", "chunk", "nodes", "messages"}
    assert wanted <= set(found), found


def kinds_of(row):
    return [kind for kind, value in row["means"].items() if value or kind in ("key", "control")]
