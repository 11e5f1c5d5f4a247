"""The endpoints that a user has named: which of them are known by what peers announce."""

from oz.protocol.node.seeds import ANSWER_TIMEOUT, Seeds
from oz.wire.announcement import Announcement
from support.cases import each

HERE, ELSEWHERE = b"here", b"elsewhere"


def peer(*endpoints, host="other", host_id=ELSEWHERE):
    return Announcement(
        uuid=bytes(16), name="peer", bus="default", host=host, host_id=host_id, pid=1, started_ns=1,
        version="1", endpoints=endpoints, local_endpoint=None,
    )  # fmt: skip


OWN = peer("tcp://10.0.0.1:5", host="mine", host_id=HERE)


def unsettled(seeds, *peers, **options):
    return Seeds(seeds, OWN, 0.0).unsettled(peers, 0.0, **options)


@each(
    ("seed", "known"),
    [
        ("tcp://10.0.0.2:5", peer("tcp://10.0.0.2:5")),
        ("tcp://pricing:5", peer("tcp://10.0.0.2:5")),
        ("tcp://127.0.0.1:6", peer("tcp://10.0.0.1:6", host="mine", host_id=HERE)),
        ("tcp://localhost:6", peer("tcp://10.0.0.1:6", host="mine", host_id=HERE)),
        # Of another directory.
        ("tcp://localhost:6", peer("tcp://127.0.0.1:6", host="mine")),
    ],
)
def test_a_seed_is_known_by_a_peer_that_announces_it_or_may_mean_it(seed, known):
    assert unsettled([seed]) == [seed]
    assert unsettled([seed], known) == []


@each(
    ("seed", "other"),
    [
        ("tcp://10.0.0.2:5", peer("tcp://10.0.0.3:5")),
        ("tcp://pricing:5", peer("tcp://10.0.0.2:6")),
        ("tcp://127.0.0.1:6", peer("tcp://10.0.0.2:6")),
        ("tcp://pricing:5", peer()),
    ],
)
def test_a_peer_somewhere_else_says_nothing_of_a_seed(seed, other):
    assert unsettled([seed], other) == [seed]


def test_a_peer_stands_for_one_seed_only():
    seeds = ["tcp://pricing:5", "tcp://risk:5", "tcp://10.0.0.3:5"]
    assert unsettled(seeds, peer("tcp://10.0.0.2:5")) == ["tcp://risk:5", "tcp://10.0.0.3:5"]
    assert unsettled(seeds, peer("tcp://10.0.0.3:5")) == ["tcp://pricing:5", "tcp://risk:5"]


def test_a_node_does_not_wait_for_itself():
    assert unsettled(["tcp://10.0.0.1:5", "tcp://127.0.0.1:5", "tcp://localhost:5", "tcp://mine:5"]) == []


def test_where_nobody_is_nobody_is_waited_for():
    assert unsettled(["tcp://a:5", "tcp://b:5"], is_absent={"tcp://a:5"}.__contains__) == ["tcp://b:5"]


def test_whoever_says_nothing_is_passed_over_once_its_time_is_over_which_begins_with_the_connection():
    seeds = Seeds(["tcp://a:5"], OWN, 10.0)
    assert seeds.unsettled([], 12.0, unsure={"tcp://a:5"}) == ["tcp://a:5"]
    assert seeds.next_deadline(["tcp://a:5"]) == 12.0 + ANSWER_TIMEOUT
    assert seeds.unsettled([], 11.9 + ANSWER_TIMEOUT) == ["tcp://a:5"]
    assert seeds.unsettled([], 12.0 + ANSWER_TIMEOUT) == []
    assert seeds.next_deadline([]) is None
