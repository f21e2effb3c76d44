"""`python sail_reader.py TABLE SQL`, in its own Python: Sail (Spark's SQL) answers about a Delta table, as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from datetime import datetime

warnings.simplefilter("ignore")

from pysail.spark import SparkConnectServer  # noqa: E402  # both warn about versions of pandas that nothing here uses
from pyspark.sql import SparkSession  # noqa: E402


def main(table: str, statement: str) -> None:
    """Print the columns' types and the rows."""
    server = SparkConnectServer()
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = spark.read.format("delta").load(table)
    found.createOrReplaceTempView("exported")
    rows = [list(row) for row in spark.sql(statement).collect()]
    print(json.dumps({"types": dict(found.dtypes), "rows": rows}, default=datetime.isoformat))
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
