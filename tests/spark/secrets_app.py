"""A Spark application that uses storage options in every way and prints plans, settings and errors.

It runs in its own process, so that a test can search all of its output for secrets.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import ffq_spark as ffq


def main() -> None:
    given = json.loads(sys.stdin.read())
    builder = SparkSession.builder.master("local[2]")
    for name, value in given["conf"].items():
        builder = builder.config(name, value)
    spark = ffq.configure(builder, plugin=given["plugin"]).getOrCreate()
    root, options = given["root"], given["options"]
    by_options(spark, root, options)
    if given["plugin"]:
        by_conf(spark, root, options)
        errors(spark, root, options, given["wrong"])
        stream(spark, root, options, given["checkpoint"])
    spark.stop()


def show(frame: Any) -> None:
    """Print a plan in all forms."""
    frame.explain(True)
    frame.explain("formatted")
    print(frame._jdf.queryExecution().toString(), frame._jdf.toString())


def by_options(spark: Any, root: str, options: dict[str, str]) -> None:
    frame = spark.range(100).selectExpr("id", "id % 10 AS k")
    settings = {"keys": "k", "partitions": "2", **options}
    frame.write.format("ffqshuffle").mode("append").options(**settings).save(root)
    read = spark.read.format("ffqshuffle").options(**options).load(root)
    show(read.where("k = 3"))
    print("rows", read.count())
    pairs = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW v USING ffqshuffle OPTIONS (path '{root}', {pairs})")
    show(spark.sql("SELECT k, count(*) FROM v GROUP BY k"))
    spark.sql("DESCRIBE EXTENDED v").show(100, False)


def by_conf(spark: Any, root: str, options: dict[str, str]) -> None:
    session = spark.newSession()
    for name, value in options.items():
        session.conf.set(f"spark.ffq.{name}", value)
    ffq.register(session)
    frame = session.range(100).selectExpr("id", "id % 10 AS k")
    frame.write.format("ffqshuffle").mode("append").save(root)
    show(session.read.format("ffqshuffle").load(root))
    session.sql("SET").show(1000, False)
    print(session.sql("SET -v").collect())


def errors(spark: Any, root: str, options: dict[str, str], wrong: dict[str, str]) -> None:
    for bad in ({**options, **wrong}, {**options, "step": "1"}):
        try:
            spark.read.format("ffqshuffle").options(**bad).load(root).count()
        except Exception as error:
            print("refused", type(error).__name__, str(error), repr(error))
    try:
        spark.range(9).write.format("ffqshuffle").mode("append").options(
            keys="id", **{**options, **wrong}
        ).save(f"{root}-2")
    except Exception as error:
        print("refused", str(error), repr(error))


def stream(spark: Any, root: str, options: dict[str, str], checkpoint: str) -> None:
    source = spark.readStream.format("ffqshuffle").options(**options, onReplace="follow").load(root)
    query = (
        source.writeStream.format("ffqshuffle")
        .options(keys="k", partitions="2", checkpointLocation=checkpoint, path=f"{root}-3")
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress, query.status)


if __name__ == "__main__":
    main()
