"""Mistakes that a type checker finds: an ignore that silences nothing is an error itself."""

import oz
import oz.asyncio


async def later(message: oz.Message) -> None:
    print(message.subject)


def number(message: oz.Message) -> int:
    return len(message.frames)


def sockets() -> None:
    oz.Publisher(bind=5)  # type: ignore[arg-type]
    oz.Publisher("tcp://127.0.0.1:*", on_full="dorp")  # type: ignore[arg-type]
    oz.Subscriber(5)  # type: ignore[arg-type]
    oz.Subscriber("tcp://127.0.0.1:1", filtering="publishers")  # type: ignore[arg-type]
    oz.asyncio.Subscriber("tcp://127.0.0.1:1", filterin="publisher")  # type: ignore[arg-type]
    subscriber = oz.Subscriber()
    subscriber.subscribe("a", handler=later)  # type: ignore[arg-type]
    subscriber.subscribe("a", handler=number)  # type: ignore[arg-type]
    subscriber.subscribe(7)  # type: ignore[arg-type]
    subscriber.receive().subject.decode()  # type: ignore[attr-defined]
    oz.SubSocket(dialect="nats").subscribe(7)  # type: ignore[arg-type]
    oz.SubSocket(dialect=7)  # type: ignore[arg-type]
    oz.SubSocket().recv_multipart().decode()  # type: ignore[attr-defined]


def nodes() -> None:
    node = oz.Node()
    oz.Node(connects="tcp://127.0.0.1:1")  # type: ignore[arg-type]
    node.subscribe("a").receve()  # type: ignore[attr-defined]


async def async_nodes() -> None:
    node = oz.asyncio.Node()
    for reply in node.request_many("a"):  # type: ignore[attr-defined]
        del reply
    node.subscribe("a").receive().subject  # type: ignore[attr-defined]  # noqa: B018


def subjects() -> None:
    index = oz.PatternIndex[str]()
    index.add(oz.compile("a"), 1)  # type: ignore[arg-type]
    index.add(oz.compile("a"))  # type: ignore[call-arg]
    oz.compile(3)  # type: ignore[arg-type]
