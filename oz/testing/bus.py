"""A bus for tests: publishers, subscribers and nodes in one process, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Self, TypeVar

from oz.errors import ClosedError, OwnershipError
from oz.numbers import check_number
from oz.testing.fronts import Blocking, Publisher, Subscriber
from oz.testing.loop import VirtualLoop
from oz.testing.network import Network
from oz.testing.nodes import Node
from oz.testing.places import VirtualProcess

T = TypeVar("T")

Member = Publisher | Subscriber | Node
"""A member of a bus. Each is a process of its own, as far as faults go."""

LONGEST = 7_200.0
"""Virtual seconds of one run after which it is given up, which takes seconds: timers of a node never end."""

_OTHERS = ("context", "multicast")
"""Arguments of `oz.asyncio` that a bus has no use for."""


class Bus:
    """A bus in one process, without sockets, threads or real time: for `with` or `async with`.

    Publishers, subscribers and nodes have the surface of `oz.asyncio` and the same engines below it. They run
    on a loop whose clock jumps: a test of hours takes milliseconds. Each is a process of its own as far as
    faults go. What ZeroMQ and a network leave open follows from the seed, and so does every name that is
    drawn: the same seed gives the same run.

    Attributes:
        network: the model of ZeroMQ below.
    """

    def __init__(self, seed: int = 0, *, longest: float = LONGEST) -> None:
        """Make a bus on which nobody is yet.

        Args:
            seed: what every choice follows from.
            longest: virtual seconds of one `run` after which it is given up, with an error that says what
                waits.
        """
        check_number("longest", longest)
        self._longest = longest
        self.network = Network(seed)
        self._random = Random(seed)
        self._runner: asyncio.Runner | None = None
        self._members: list[Member] = []
        self._endpoints: list[str] = []
        self._followers: list[Subscriber] = []
        self._adopted = 0
        self._is_closed = self._is_disturbed = False

    # running ---------------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the bus's own loop; the next call goes on where this one ends.

        Args:
            coroutine: what is to be run.

        Returns:
            What it returns.

        Raises:
            Deadlock: nothing is left to happen that it waits for, or it takes longer than `longest`.
        """
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=self.make_loop)
        if new := [one for one in self._members[self._adopted :] if isinstance(one, Publisher)]:
            self._runner.run(_adopt(new))
        self._adopted = len(self._members)
        return self._runner.run(coroutine)

    def make_loop(self) -> VirtualLoop:
        """Make a loop on the bus's clock, for `asyncio.Runner(loop_factory=bus.make_loop)`."""
        return VirtualLoop(self.network.clock, longest=self._longest)

    def now(self) -> float:
        """Return the seconds of virtual time since the clock was made."""
        return self.network.now

    def _join_loop(self) -> None:
        """Take the clock of the loop that runs, if nothing has happened here yet."""
        if asyncio._get_running_loop() is None:
            return
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise OwnershipError(
                "a bus needs a loop whose clock jumps: bus.run(…), or a runner with "
                "loop_factory=oz.testing.VirtualLoop"
            )
        if loop.clock is self.network.clock:
            return
        if self._members:
            raise OwnershipError("this bus has begun on another loop; make one in this loop")
        self.network.clock = loop.clock

    # who is there ----------------------------------------------------------------------------------------

    def publisher(self, **options: Any) -> Publisher:
        """Make a publisher.

        Args:
            options: as of `oz.asyncio.Publisher`. Without `bind` and `connect` it is bound at an address of
                its own, to which all subscribers connect that are given none either, also later ones.

        Returns:
            The publisher.

        Raises:
            ValueError, TypeError, zmq.ZMQError: as `oz.asyncio.Publisher`; an option has no place here.
            OwnershipError: the loop that runs is of another kind, or another than before.
        """
        place = self._place("publisher", options)
        _refuse_unmodelled(options)
        is_own = not (options.get("bind") or options.get("connect"))
        if is_own:
            options["bind"] = f"tcp://127.0.0.1:{self.network.free_port()}"
        made = Publisher(place, **options)
        self._members.append(made)
        if is_own:
            self._endpoints.append(options["bind"])
            for one in self._followers:
                if not one.closed:
                    one.connect(options["bind"])
        return made

    def subscriber(self, **options: Any) -> Subscriber:
        """Make a subscriber.

        Args:
            options: as of `oz.asyncio.Subscriber`. Without `connect` and `bind` it connects to all publishers
                that were given neither, also to later ones.

        Returns:
            The subscriber.

        Raises:
            ValueError, TypeError, zmq.ZMQError: as `oz.asyncio.Subscriber`; an option has no place here.
            OwnershipError: the loop that runs is of another kind, or another than before.
        """
        place = self._place("subscriber", options)
        _refuse_unmodelled(options)
        follows = not (options.get("bind") or options.get("connect"))
        made = Subscriber(place, **(options | ({"connect": self._endpoints} if follows else {})))
        self._members.append(made)
        if follows:
            self._followers.append(made)
        return made

    def node(self, name: str | None = None, **options: Any) -> Node:
        """Make a node, which joins by `async with` or `start` and finds the others by itself.

        Args:
            name: what it is called; a number unless given. Who has the name of one that was killed takes
                its place.
            options: as of `oz.asyncio.Node`.

        Returns:
            The node.

        Raises:
            ConfigurationError, TypeError, ValueError: as `oz.asyncio.Node`; an option has no place here.
            OwnershipError: the loop that runs is of another kind, or another than before.
        """
        place = self._place("node", options, name)
        made = Node(place, name or place.host, **options)
        self._members.append(made)
        return made

    def blocking(self, member: Member) -> Any:
        """Return a member as blocking code sees it: with the calls of `oz` in place of `oz.asyncio`'s.

        `receive(timeout=3600)` lets time pass on the bus's own loop, and returns at once. Handlers run in
        that loop: they use the member itself.

        Args:
            member: what `publisher`, `subscriber` or `node` gave.

        Returns:
            The same member; for use outside of loops.
        """
        return Blocking(self.run, member)

    def _place(self, kind: str, options: dict[str, Any], name: str | None = None) -> VirtualProcess:
        self._join_loop()
        for one in _OTHERS:
            if options.get(one) is not None:
                raise ValueError(f"a bus of oz.testing has no use for {one}=")
        taken = {one.place.host for one in self._members if not one.closed}
        numbered = (f"{kind}-{number}" for number in range(1, len(self._members) + 3))
        host = name if name and name not in taken else next(one for one in numbered if one not in taken)
        return VirtualProcess(self.network, host)

    # faults ----------------------------------------------------------------------------------------------

    def cut(self, one: Member | str, other: Member | str) -> None:
        """Break all connections between two members, and let no other come about until `heal`.

        What is on its way is lost. Each tries again by itself, as where packets get lost: nobody is refused.

        Args:
            one: a member, or the name of a node.
            other: another.
        """
        self.network.cut(self._host(one), self._host(other))

    def stall(self, one: Member | str, other: Member | str) -> None:
        """Pass nothing on between two members until `heal`; nothing is lost.

        Args:
            one: a member, or the name of a node.
            other: another.
        """
        self.network.stall(self._host(one), self._host(other))

    def heal(self) -> None:
        """End all faults but deaths: who was cut off connects again, and what was stalled goes on."""
        self._is_disturbed = False
        self.network.heal()

    def kill(self, one: Member | str) -> None:
        """End a member as `kill -9` ends a process: what it has not sent is lost, and nobody is told.

        Calls on it raise `oz.ClosedError` from then on. Make another one to start it again.

        Args:
            one: a member, or the name of a node.
        """
        host = self._host(one)
        self.network.kill(host)
        for member in self._members:
            if member.place.host == host and not member.closed:
                member.die()

    def disturb(self, every: float, longest: float = 1.0) -> None:
        """Cut or stall what is between two members now and then, by the seed, until `heal`.

        Args:
            every: seconds between two faults, on average; more than 0.
            longest: seconds after which a fault is over, at most; more than 0.

        Raises:
            ValueError: a time is not more than 0.
        """
        for name, seconds in (("every", every), ("longest", longest)):
            check_number(name, seconds)
            if not seconds > 0:
                raise ValueError(f"{name} is more than 0 seconds, not {seconds!r}")
        self._is_disturbed = True
        self._disturb_later(every, longest)

    def _disturb_later(self, every: float, longest: float) -> None:
        when = self.network.now + self._random.uniform(0, 2 * every)
        self.network.call_at(when, lambda: self._disturb(every, longest))

    def _disturb(self, every: float, longest: float) -> None:
        hosts = sorted({one.place.host for one in self._members if not one.closed})
        if not self._is_disturbed or self._is_closed:
            return
        if len(hosts) > 1:
            one, other = self._random.sample(hosts, 2)
            fault = self._random.choice((self.network.cut, self.network.stall))
            fault(one, other)
            ends = self.network.now + self._random.uniform(0, longest)
            self.network.call_at(ends, lambda: self.network.heal(one, other))
        self._disturb_later(every, longest)

    def _host(self, one: Member | str) -> str:
        host = one if isinstance(one, str) else one.place.host
        if not any(member.place.host == host for member in self._members):
            raise ValueError(f"nobody on this bus is called {host!r}")
        return host

    # the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what is still open, and the bus's own loop."""
        if self._is_closed:
            return
        if self._runner is not None:
            self._runner.run(self._close_under_tasks())
            self._runner.close()
        self._end()

    async def _close_under_tasks(self) -> None:
        """Close what is open, also what a task waits for that nobody has ended: nobody is told of its end."""
        loop = asyncio.get_running_loop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await self._close_members()
        await asyncio.sleep(0)
        for task in left:
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None and not isinstance(error, (ClosedError, StopAsyncIteration)):
                loop.call_exception_handler({"message": f"{task!r} has failed", "exception": error})

    async def _close_members(self) -> None:
        self.heal()
        for one in reversed(self._members):
            await one.close()

    def _end(self) -> None:
        """Kill the members that are left, as nobody lets time pass here any more."""
        self._is_closed = True
        for one in self._members:
            if not one.closed:
                self.kill(one)

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is still open."""
        self.close()

    async def __aenter__(self) -> Self:
        """Use it in `async with`, on a loop whose clock jumps."""
        self._join_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close what is still open."""
        await self._close_members()
        self._end()


async def _adopt(publishers: list[Publisher]) -> None:
    """Attend to publishers in the loop that were made while no loop ran."""
    for one in publishers:
        one.adopt()


def _refuse_unmodelled(options: dict[str, Any]) -> None:
    """Refuse the arguments of a publisher or subscriber for which the model of ZeroMQ has no sockets.

    Raises:
        ValueError: there is one.
    """
    if options.get("security") is not None:
        raise ValueError("publishers and subscribers of oz.testing have no keys: leave security= out")
    if getattr(options.get("options"), "multicast", None) is not None:
        raise ValueError("a bus of oz.testing has no multicast: leave multicast= out")
