"""Lag and rates of streaming queries, as they are exported."""

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark
from spark.source_journals import fill, numbered, streamed
from support.waiting import until

PROGRESS = {
    "id": "4f1c",
    "name": None,
    "durationMs": {"triggerExecution": 1500},
    "sources": [
        {
            "latestOffset": '{"journal": "ab", "offset": 900, "lag": 300, "lost": 2}',
            "numInputRows": 100,
            "inputRowsPerSecond": 50.0,
            "processedRowsPerSecond": 66.5,
        },
        {"latestOffset": "17", "numInputRows": 1},
    ],
}


def test_figures_are_those_of_the_last_progress_and_rows_add_up(tmp_path):
    metrics = oz.spark.QueryMetrics(tmp_path / "oz.prom")
    metrics.take(PROGRESS)
    metrics.take({**PROGRESS, "name": 'de"lays'})
    metrics.take(PROGRESS)
    assert metrics.figures["4f1c", 0] == (300, 2, 200, 50.0, 66.5, 1.5)
    assert metrics.figures["4f1c", 1][:3] == (None, None, 2)
    written = (tmp_path / "oz.prom").read_text()
    assert written == metrics.text()
    assert '# TYPE oz_spark_lost_total counter\noz_spark_lost_total{query="4f1c",source="0"} 2\n' in written
    assert 'oz_spark_lag{query="de\\"lays",source="0"} 300\n' in written
    assert [each.name for each in tmp_path.iterdir()] == ["oz.prom"]


def test_spark_tells_the_listener_how_far_a_query_is(spark, tmp_path):
    metrics = oz.spark.QueryMetrics()
    spark.streams.addListener(metrics)
    try:
        fill(tmp_path / "journal", [numbered(300)])
        frame = streamed(spark, tmp_path / "journal", maxRowsPerTrigger=200)
        writing = frame.writeStream.format("noop").queryName("watched").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(400)
        until(lambda: metrics.figures.get(("watched", 0), (None,) * 3)[2] == 300, 60)
        assert metrics.figures["watched", 0][:3] == (0, 0, 300)
    finally:
        spark.streams.removeListener(metrics)
