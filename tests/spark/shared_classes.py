"""Write down the classes that Spark loads, for each Java of the tests to have them at once.

    python shared_classes.py FILE

`-XX:SharedArchiveFile=FILE` halves what a Java works until its first query is done, and the tests start a
dozen. A file that is there already is left alone; Java passes over one of another Java or another Spark.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 600.0


def use_spark(directory):
    """Do some of what tests do, in a Java that then ends."""
    import oz.spark
    from oz.journal import Writer

    with Writer(f"{directory}/journal") as writer:
        writer.append([(f"a.{number % 7}", b"x") for number in range(1_000)])
    spark = oz.spark.session("local[2]", **{"spark.sql.shuffle.partitions": 2})
    given = {"journal": f"{directory}/journal"}
    rows = spark.read.format("oz").options(**given).load()
    counted = rows.where(oz.spark.matches("subject", "a.*")).groupBy("subject").count()
    counted.orderBy("subject").write.parquet(f"{directory}/rows")
    spark.read.parquet(f"{directory}/rows").toArrow()
    stream = spark.readStream.format("oz").options(**given).load().writeStream
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    stream.start(f"{directory}/streamed").awaitTermination()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()  # by which it notices that it is to end, and then it writes
    java.wait(SECONDS)


def main(file):
    path = Path(file)
    if path.exists():
        return
    begun = path.with_name(f"{path.name}.{os.getpid()}")
    options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={begun} -Xlog:disable"
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run(
            [sys.executable, __file__, "--use", directory],
            env={**os.environ, "JDK_JAVA_OPTIONS": options},
            timeout=SECONDS,
            check=False,
        )
    if ended.returncode == 0 and begun.exists():
        begun.replace(path)
    else:
        print(f"no {path}: each Java of the tests loads its classes for itself")


if __name__ == "__main__":
    if sys.argv[1] == "--use":
        use_spark(sys.argv[2])
    else:
        main(sys.argv[1])
