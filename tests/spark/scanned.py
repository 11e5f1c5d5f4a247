"""What a query reads of Parquet files, beside what it finds."""


def read_by(spark, path, condition):
    """How many rows match, and how many the scan put out."""
    rows = spark.read.parquet(str(path)).filter(condition)
    execution = rows._jdf.queryExecution()
    count = len(execution.executedPlan().executeCollect())
    waiting, scanned = [execution.executedPlan()], None
    while waiting:
        node = waiting.pop()
        if "FileSourceScanExec" in node.getClass().getName():
            scanned = node.metrics().apply("numOutputRows").value()
        children = node.children()
        waiting += [children.apply(at) for at in range(children.size())]
    return count, scanned
