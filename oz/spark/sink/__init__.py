"""The sink: rows of a DataFrame are published on the bus, `df.write.format("oz")` and `df.writeStream`.

Tasks stage what is to be published, and publish nothing. When all tasks of a batch are done, one process on
the driver's machine writes down which rows the batch has, and publishes them, each with an id that stays the
same however often the batch has to be published again.
"""

from oz.spark.sink.settings import SinkSettings
from oz.spark.sink.writers import BatchWriter, StreamWriter, batch_writer, stream_writer

__all__ = ["BatchWriter", "SinkSettings", "StreamWriter", "batch_writer", "stream_writer"]
