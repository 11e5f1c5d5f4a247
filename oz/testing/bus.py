"""Bus for tests: publishers, subscribers and nodes in one process with a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from oz.errors import ClosedError, ConfigurationError, OwnershipError
from oz.multicast.endpoints import is_multicast
from oz.numbers import check_number
from oz.testing.context import Context
from oz.testing.fronts import Blocking, Publisher, Subscriber
from oz.testing.loop import VirtualLoop
from oz.testing.network import Network
from oz.testing.nodes import Node
from oz.transport.endpoints import Endpoints, as_list

T = TypeVar("T")

Member = Publisher | Subscriber | Node
"""Member of a bus. Faults affect each member as if it ran in a separate process."""

LONGEST = 7_200.0
"""Default for the maximum duration of one run, in virtual seconds. A run needs a maximum, because the timers of
publishers and nodes never end."""


class Bus:
    """Bus in one process without sockets, threads or real time. Use it with `with` or `async with`.

    The members are publishers, subscribers and nodes with the methods of `oz.asyncio`. They run on a loop with a
    virtual clock. Therefore a test of hours takes milliseconds. Faults affect each member as if it ran in a separate
    process. The seed determines all random names, delays and capacities: the same seed gives the same run.

    Attributes:
        network: virtual network of the members. It has methods for further faults.
    """

    def __init__(self, seed: int = 0, *, longest: float = LONGEST) -> None:
        """Create a bus without members.

        Args:
            seed: number that determines all random choices.
            longest: maximum duration of one `run` in virtual seconds. A longer run raises `Deadlock`, whose text names
                the waiting tasks.
        """
        check_number("longest", longest)
        self._longest = longest
        self.network = Network(seed)
        self._runner: asyncio.Runner | None = None
        self._members: list[Member] = []
        self._endpoints: list[str] = []
        self._followers: list[Subscriber] = []
        self._adopted = 0
        self._is_closed = False

    # running ---------------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the bus. The next call continues at the same virtual time.

        Args:
            coroutine: coroutine to run.

        Returns:
            The result of the coroutine.

        Raises:
            Deadlock: the coroutine waits although no event remains, or runs longer than `longest` virtual seconds.
            OwnershipError: a loop is running in this thread.
        """
        if asyncio._get_running_loop() is not None:
            coroutine.close()
            raise OwnershipError(
                "a call that blocks cannot wait in a running loop, as in an `async def` test or a handler: "
                "use oz.asyncio there, or run blocking code in a plain `def` test"
            )
        if self._runner is None:
            self._runner = asyncio.Runner(
                loop_factory=lambda: VirtualLoop(self.network.clock, longest=self._longest)
            )
        if new := [
            member for member in self._members[self._adopted :] if isinstance(member, (Publisher, Node))
        ]:
            self._runner.run(_adopt(new))
        self._adopted = len(self._members)
        return self._runner.run(coroutine)

    def now(self) -> float:
        """Return the virtual time in seconds since the clock was created."""
        return self.network.now

    def _join_loop(self) -> None:
        """Use the clock of the running loop, if the bus has no members yet."""
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

    # members ---------------------------------------------------------------------------------------------

    def publisher(
        self, bind: Endpoints | None = None, connect: Endpoints | None = None, **options: Any
    ) -> Publisher:
        """Create a publisher.

        Args:
            bind: endpoints to bind, as for `oz.asyncio.Publisher`. Without `bind` and `connect`, the publisher binds
                an unused address. All subscribers of the bus that were created without endpoints connect to this
                address, even later ones.
            connect: endpoints to connect to, as for `oz.asyncio.Publisher`.
            options: other arguments of `oz.asyncio.Publisher`.

        Raises:
            ValueError, TypeError, zmq.ZMQError: an argument is wrong, as for `oz.asyncio.Publisher`, or is not
                allowed on a bus.
            OwnershipError: the running loop has a real clock, or other members belong to another loop.
        """
        options |= {"bind": bind, "connect": connect}
        place = self._place("publisher", options)
        is_own = not (bind or connect)
        if is_own:
            options["bind"] = f"tcp://127.0.0.1:{self.network.free_port()}"
        made = Publisher(place, **options)
        self._members.append(made)
        if is_own:
            self._endpoints.append(options["bind"])
            for follower in self._followers:
                if not follower.closed:
                    follower.connect(options["bind"])
        return made

    def subscriber(
        self, connect: Endpoints | None = None, bind: Endpoints | None = None, **options: Any
    ) -> Subscriber:
        """Create a subscriber.

        Args:
            connect: endpoints to connect to, as for `oz.asyncio.Subscriber`. Without `connect` and `bind`, the
                subscriber connects to all publishers of the bus that were created without endpoints, even later ones.
            bind: endpoints to bind, as for `oz.asyncio.Subscriber`.
            options: other arguments of `oz.asyncio.Subscriber`.

        Raises:
            ValueError, TypeError, zmq.ZMQError: an argument is wrong, as for `oz.asyncio.Subscriber`, or is not
                allowed on a bus.
            OwnershipError: the running loop has a real clock, or other members belong to another loop.
        """
        options |= {"bind": bind, "connect": connect}
        place = self._place("subscriber", options)
        follows = not (bind or connect)
        made = Subscriber(place, **(options | ({"connect": self._endpoints} if follows else {})))
        self._members.append(made)
        if follows:
            self._followers.append(made)
        return made

    def node(self, name: str | None = None, **options: Any) -> Node:
        """Create a node. The node joins the bus at once, and finds the other nodes of the bus.

        Args:
            name: name of the node. Default: "node-" and a number. A new node may have the name of a killed node.
            options: arguments of `oz.asyncio.Node`.

        Raises:
            ConfigurationError, EndpointError, TypeError: an argument is wrong, as for `oz.asyncio.Node`.
            ValueError: an argument is not allowed on a bus.
            OwnershipError: the running loop has a real clock, or other members belong to another loop.
        """
        place = self._place("node", options, name)
        made = Node(place, name or place.host, **options)
        self._members.append(made)
        return made

    def blocking(self, member: Member) -> Any:
        """Return an object with the blocking methods of `oz` for a member. Use it in code outside of event loops.

        A blocking method runs the loop of the bus. Handlers run in this loop, and must use the member itself.

        Args:
            member: publisher, subscriber or node of this bus.
        """
        return Blocking(self.run, member)

    def _place(self, kind: str, options: dict[str, Any], name: str | None = None) -> Context:
        self._join_loop()
        _refuse_unmodelled(options)
        taken = {member.place.host for member in self._members if not member.closed}
        numbered = (f"{kind}-{number}" for number in range(1, len(self._members) + 3))
        host = name if name and name not in taken else next(free for free in numbered if free not in taken)
        return Context(self.network, host)

    # faults ----------------------------------------------------------------------------------------------

    def cut(self, member: Member | str, other: Member | str) -> None:
        """Break all connections between two members, and allow no new connections until `heal`.

        Messages in transit are lost. New connections time out, as if a network dropped their packets.

        Args:
            member: member, or name of a node.
            other: another member, or name of another node.
        """
        self.network.cut(self._host(member), self._host(other))

    def stall(self, member: Member | str, other: Member | str) -> None:
        """Hold back all messages between two members until `heal`. No message is lost.

        Args:
            member: member, or name of a node.
            other: another member, or name of another node.
        """
        self.network.stall(self._host(member), self._host(other))

    def heal(self) -> None:
        """End all cuts and stalls. Members connect again, and stalled messages arrive."""
        self.network.heal()

    def kill(self, member: Member | str) -> None:
        """End a member as `kill -9` ends a process. Unsent messages are lost.

        Later calls of methods of the member raise `oz.ClosedError`. To simulate a restart, create a new member.

        Args:
            member: member, or name of a node.
        """
        host = self._host(member)
        self.network.kill(host)
        for killed in self._members:
            if killed.place.host == host and not killed.closed:
                killed.die()

    def _host(self, member: Member | str) -> str:
        if not isinstance(member, str) and member not in self._members:
            raise TypeError(
                f"{member!r} is not a member of this bus or the name of a node; members are {self._names()}"
            )
        host = member if isinstance(member, str) else member.place.host
        if not any(known.place.host == host for known in self._members):
            raise ValueError(f"this bus has no member {host!r}; it has {self._names()}")
        return host

    def _names(self) -> str:
        return ", ".join(sorted({member.place.host for member in self._members})) or "none"

    # closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all members, and the loop of the bus."""
        if self._is_closed:
            return
        if self._runner is not None:
            self._runner.run(self._close_under_tasks())
            self._runner.close()
        self._end()

    async def _close_under_tasks(self) -> None:
        """Close all members, even if tasks still wait for a member.

        The tasks then end with `ClosedError` or `StopAsyncIteration`. Only other errors of these tasks are logged.
        """
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
        for member in reversed(self._members):
            await member.close()

    def _end(self) -> None:
        """Kill the members that are still open. Virtual time has stopped, and they cannot close normally."""
        self._is_closed = True
        for member in self._members:
            if not member.closed:
                self.kill(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        """Return the bus. The running loop must have a virtual clock."""
        self._join_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_members()
        self._end()


async def _adopt(members: list[Publisher | Node]) -> None:
    for member in members:
        member.adopt()


def _refuse_unmodelled(options: dict[str, Any]) -> None:
    if options.get("context") is not None:
        raise ValueError("a bus of oz.testing has no context=: leave it out")
    if (security := options.get("security")) is not None:
        rule = (
            "members of a test bus have no keys: leave security= out, and test permissions with oz.Publisher or "
            "oz.Node on tcp://127.0.0.1:*"
        )
        raise ConfigurationError("security", security, "argument", rule)
    multicast = getattr(options.get("options"), "multicast", None)
    if multicast is not None or any(
        map(is_multicast, (*as_list(options.get("bind")), *as_list(options.get("connect"))))
    ):
        raise ValueError(
            "a bus of oz.testing has no multicast: leave multicast= out, and use tcp://, ipc:// or inproc://"
        )
