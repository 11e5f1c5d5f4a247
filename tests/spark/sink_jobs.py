"""What drivers on other masters do with the sink: imported by name in their processes."""

from pyspark import TaskContext


def publish_though_first_attempts_fail(spark, endpoint, staging, rows):
    """Publish numbered rows from two tasks, each of which stages its rows and fails the first time."""

    def fail_first(batches):
        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    numbered = spark.range(0, rows, 1, 2).selectExpr("concat('n.', id) subject", "repeat('x', 100) payload")
    failing = numbered.mapInArrow(fail_first, "subject string, payload string")
    writer = failing.write.format("oz").option("endpoint", endpoint).option("staging", staging)
    writer.mode("append").save()
