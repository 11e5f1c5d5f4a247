"""A queue group loses no message of a member that is killed, and marks each repeat."""

import time

import pytest

from faults import oracle
from faults.driver import DEADLINE, Run
from support.sizes import SOAK, first_in_suite, size
from support.waiting import until

RATE = 300
KILLS = size(1, 12)
MEMBERS = 3


class Group:
    """Members of a group. A member that was killed is replaced by a new process."""

    def __init__(self, run, kind, **subscription):
        self._run, self._kind = run, kind
        self._options = {"group": "workers", **subscription}
        self.all = []

    def add(self):
        reader = self._run.role(f"member-{len(self.all)}", has_handler=True, **self._options)
        self._run.start(self._kind, reader)
        self.all.append(reader)
        return reader

    def logs(self):
        return [item.events() for item in self.all]

    def until_all_handled(self, published):
        wanted = set(range(published))
        until(
            lambda: wanted <= {number for log in self.logs() for _, number in oracle.messages(log)}, DEADLINE
        )

    def delays(self, killed_at):
        """Return for each redelivered message the seconds since the last kill before it."""
        found = [item[3] for log in self.logs() for item in log if item[0] == "r"]
        return [when - max((at for at in killed_at if at <= when), default=when) for when in found]


def assert_exact(group, published):
    group.until_all_handled(published)
    logs = group.logs()
    oracle.check_group(logs, published)
    assert not [gap for log in logs for gap in oracle.gaps(log)]


@pytest.mark.sized
@pytest.mark.parametrize(
    ("kind", "reading", "policy"),
    first_in_suite(("sync", "asyncio"), ("asyncio", "sync"), ("round_robin", "sticky", "failover")),
)
def test_a_group_loses_no_message_of_a_member_that_is_killed(kind, reading, policy, tmp_path, capsys):
    options = {"resume_seconds": 5.0}
    with Run(tmp_path, kind, options=options) as run:
        group = Group(
            run, reading, ack="handled", delivery={"policy": policy, "redeliver": True}, options=options
        )
        members = [group.add() for _ in range(MEMBERS)]
        run.ready(*members)
        run.publisher.ask(do="wait", count=MEMBERS, timeout=60)
        run.publisher.ask(do="start", rate=RATE)
        killed_at = []
        for at in range(KILLS):
            run.until_published(RATE)
            turn = at % MEMBERS
            killed_at.append(time.monotonic())
            members[turn].program.kill()
            members[turn] = group.add()
            run.ready(members[turn])
        published = run.publisher.ask(do="stop")["published"]
        assert_exact(group, published)
        delays = group.delays(killed_at)
        if SOAK:
            with capsys.disabled():
                print(
                    f"\n{kind} {reading} {policy}: {len(delays)} redelivered, latest {max(delays, default=0):.1f} s"
                )
