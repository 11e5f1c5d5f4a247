"""Every public call of the services and of the configuration once. They are checked, not run."""

from datetime import datetime
from pathlib import Path
from typing import assert_type

import oz
import oz.configuration
import oz.services.asking
import oz.services.forwarder
import oz.services.leg
import oz.services.nameserver
import oz.services.proxy
import oz.services.recorder
import oz.services.replayer
from oz.journal import Journal


def look() -> None:
    print("looked")


def functions() -> None:
    print(oz.configuration.private_directory(Path("there"), source="argument"))
    assert_type(oz.configuration.resolve(), oz.configuration.Configuration)
    assert_type(oz.configuration.survey(), oz.configuration.Survey)
    assert_type(oz.services.asking.ask("a.b", bus="lan", timeout=1.0, context=None), list[oz.Announcement])
    assert_type(
        oz.services.replayer.replay(
            Journal("there"),
            oz.Publisher(),
            pattern=oz.compile("a.>"),
            start=datetime.now(),
            end=datetime.now(),
            speed=1.0,
            headers=True,
            wait_for_room=True,
            control=oz.services.replayer.Control(),
            stats=None,
            on_look=look,
        ),
        oz.services.replayer.ReplayStats,
    )


def forwarders(forwarder: oz.services.forwarder.Forwarder) -> None:
    forwarder.close()
    forwarder.run(look=look)
    forwarder.stop()
    forwarder.turn(seconds=1.0)
    with oz.services.forwarder.Forwarder([{"bus": "lan"}, {"bus": "wan"}], name="desk") as made:
        assert_type(made, oz.services.forwarder.Forwarder)


def name_servers(name_server: oz.services.nameserver.NameServer) -> None:
    name_server.close()
    name_server.run(look=look)
    name_server.stop()
    name_server.turn(seconds=1.0)
    with oz.services.nameserver.NameServer(
        ["tcp://127.0.0.1:*"], name="desk", context=None, beacon=1.0, expiry=1.0
    ) as made:
        assert_type(made, oz.services.nameserver.NameServer)


def proxys(proxy: oz.services.proxy.Proxy) -> None:
    proxy.close()
    proxy.run(look=look)
    proxy.stop()
    with oz.services.proxy.Proxy(
        frontend=["tcp://127.0.0.1:*"],
        backend=["tcp://127.0.0.1:*"],
        connect=["tcp://127.0.0.1:*"],
        high_water_mark=1,
    ) as made:
        assert_type(made, oz.services.proxy.Proxy)


def recorders(recorder: oz.services.recorder.Recorder) -> None:
    recorder.close()
    recorder.run(on_look=look)
    recorder.stop()
    recorder.wait_ready(timeout=1.0)
    with oz.services.recorder.Recorder(
        Path("there"),
        ["a.>", oz.compile("b")],
        connect=b"x",
        bind=b"x",
        filtering="publisher",
        most_waiting=1,
        commit_seconds=1.0,
        subscriber={"trace": "7f"},
    ) as made:
        assert_type(made, oz.services.recorder.Recorder)


def controls(control: oz.services.replayer.Control) -> None:
    control.pause()
    control.resume()
    control.stop()
    control.toggle()
    assert_type(oz.services.replayer.Control(), oz.services.replayer.Control)


def forwarder_statss(forwarder_stats: oz.services.leg.ForwarderStats) -> None:
    forwarder_stats.add(forwarder_stats)
