"""The columns that the source gives, as Spark has them."""

from pyspark.sql.types import StructType

from oz.spark.source.rows import DDL

_TYPES = {
    "BIGINT": "long",
    "TIMESTAMP": "timestamp",
    "TINYINT": "byte",
    "BINARY": "binary",
    "STRING": "string",
}
SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": _TYPES[kind.split()[0]],
                "nullable": "NOT" not in kind,
                "metadata": {},
            }
            for name, kind in DDL.items()
        ],
    }
)
