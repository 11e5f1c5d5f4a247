"""The sink where tasks run in other processes, and are tried again."""

import os

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from spark.sink_jobs import publish_though_first_attempts_fail
from spark.sink_listening import Listening

ROWS = 20_000


def test_rows_of_a_cluster_arrive_once_and_in_order_though_tasks_fail_at_first(engine, tmp_path):
    with Listening(filtering="publisher") as sub:
        engine.run(publish_though_first_attempts_fail, sub.endpoint, str(tmp_path), ROWS)
        sub.received(ROWS)
    assert [message.subject for message in sub.messages] == [f"n.{row}" for row in range(ROWS)]
    assert os.listdir(tmp_path) == []
