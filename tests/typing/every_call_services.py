"""Every public call of the services and of the configuration once. They are checked, not run."""

from datetime import datetime
from pathlib import Path
from typing import assert_type

import oz
import oz.configuration
import oz.services
from oz.journal import Journal


def look() -> None:
    print("looked")


def functions() -> None:
    print(oz.configuration.private_directory(Path("there"), source="argument"))
    assert_type(oz.configuration.resolve(), oz.configuration.Configuration)
    assert_type(oz.configuration.survey(), oz.configuration.ConfigurationSurvey)
    assert_type(
        oz.services.replay(
            Journal("there"),
            oz.Publisher(),
            pattern=oz.compile("a.>"),
            start=datetime.now(),
            end=datetime.now(),
            speed=1.0,
            headers=True,
        ),
        oz.services.Replay,
    )


def forwarders(forwarder: oz.services.Forwarder) -> None:
    forwarder.close()
    forwarder.run(look=look)
    forwarder.stop()
    forwarder.turn(seconds=1.0)
    with oz.services.Forwarder([{"bus": "lan"}, {"bus": "wan"}], name="desk") as made:
        assert_type(made, oz.services.Forwarder)


def name_servers(name_server: oz.services.NameServer) -> None:
    name_server.close()
    name_server.run(look=look)
    name_server.stop()
    name_server.turn(seconds=1.0)
    with oz.services.NameServer(
        ["tcp://127.0.0.1:*"], name="desk", bus="lan", connect="tcp://a:1", lost_after=1.0
    ) as made:
        assert_type(made, oz.services.NameServer)


def proxys(proxy: oz.services.Proxy) -> None:
    proxy.close()
    proxy.run(look=look)
    proxy.stop()
    with oz.services.Proxy(
        frontend=["tcp://127.0.0.1:*"],
        backend=["tcp://127.0.0.1:*"],
        connect=["tcp://127.0.0.1:*"],
        high_water_mark=1,
    ) as made:
        assert_type(made, oz.services.Proxy)


def gateways(gateway: oz.services.Gateway) -> None:
    gateway.close()
    gateway.run(look=look)
    gateway.stop()
    gateway.turn(seconds=1.0)
    gateway.wake()
    assert_type(gateway.is_ready, bool)
    assert_type(gateway.stats, oz.services.GatewayStats)
    with oz.services.Gateway(
        receive="epgm://lo;239.192.1.1:5555",
        send="epgm://lo;239.192.1.1:5556",
        subscribers="ipc://x",
        publishers="ipc://y",
        connect="ipc://z",
        multicast=oz.Multicast(rate_kbps=1_000),
        echo=True,
        keep_origins=True,
        options=oz.Options(),
        security="keys.toml",
    ) as made:
        assert_type(made, oz.services.Gateway)


def recorders(recorder: oz.services.Recorder) -> None:
    recorder.close()
    recorder.run(on_poll=look)
    recorder.stop()
    recorder.wait_ready(timeout=1.0)
    print(recorder.pending, recorder.stats.recorded)
    with oz.services.Recorder(
        Path("there"),
        ["a.>", oz.compile("b")],
        source=["ipc://x"],
        subscriber={"filtering": "publisher"},
        max_pending_bytes=1,
        commit_seconds=1.0,
        sync="none",
    ) as made:
        assert_type(made, oz.services.Recorder)
    oz.services.Recorder(Path("there"), "a.>", source=oz.Node()).close()
    oz.services.Recorder(Path("there"), "a.>", source=oz.Subscriber("ipc://x")).close()


def replays(replay: oz.services.Replay) -> None:
    replay.pause()
    replay.resume()
    replay.stop()
    replay.run(on_poll=look)
    assert_type(replay.offset, int | None)
