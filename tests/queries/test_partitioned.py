"""Queries by the keys of an exchange plan no shuffle, and return the rows of an ordinary table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as f
from query_plans import Answer, conf, nodes_in
from spark_rows import failure, read, rows, write

pytestmark = pytest.mark.spark

Query = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def frames(spark: Any) -> dict[str, Any]:
    """Make rows with null keys, repeated keys, and keys that only one side has."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    left = spark.range(0, 400, 1, 3).selectExpr(
        "IF(id % 13 = 0, NULL, id % 90) AS k", "CAST(id % 7 AS STRING) AS g", "id AS v"
    )
    right = spark.range(0, 300, 1, 2).selectExpr(
        "IF(id % 17 = 0, NULL, id % 110) AS k", "CAST(id % 5 AS STRING) AS g", "id AS w"
    )
    small = right.selectExpr("CAST(k AS INT) AS k", "g", "w")
    return {"a": left, "d": small, **dict.fromkeys("bcepqr", right)}


@pytest.fixture(scope="module")
def exchanges(
    spark: Any, frames: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Write exchanges by k in different numbers of partitions; `m`, `n` and `o` by two keys."""
    roots = {name: str(tmp_path_factory.mktemp(name) / "root") for name in "abcdepqrmno"}
    counts = {"a": 8, "b": 8, "c": 4, "d": 8, "e": 6, "p": 5, "q": 10, "r": 12}
    for name, partitions in counts.items():
        write(frames[name], roots[name], keys="k", partitions=partitions)
    # Three steps: the second replaces the first, and the third is appended.
    write(frames["a"].limit(50), roots["m"], keys="k,g", partitions=6)
    write(frames["a"].where("v % 2 = 0"), roots["m"], mode="overwrite")
    write(frames["a"].where("v % 2 = 1"), roots["m"])
    write(frames["b"], roots["n"], keys="k,g", partitions=6)
    write(frames["b"], roots["o"], keys="g,k", partitions=6)
    return {name: read(spark, root) for name, root in roots.items()}


@pytest.fixture(scope="module")
def tables(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "m": frames["a"], "n": frames["b"], "o": frames["b"]}


@pytest.fixture(scope="module")
def expected() -> Callable[[str, Callable[[], Any]], list[str]]:
    """Return a function that caches a query's rows over plain tables."""
    known: dict[str, list[str]] = {}

    def find(name: str, query: Callable[[], Any]) -> list[str]:
        if name not in known:
            known[name] = rows(query())
        return known[name]

    return find


@pytest.fixture(params=["true", "false"], ids=["aqe", "no aqe"])
def aqe(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    with conf(spark, spark_sql_adaptive_enabled=request.param):
        yield


def joined(left: str, right: str, how: str = "inner", on: Any = "k") -> Query:
    return lambda t: t[left].join(t[right].drop("g") if on == "k" else t[right], on, how)


def ranked(t: dict[str, Any]) -> Any:
    window = Window.partitionBy("k").orderBy("v")
    return t["a"].select("k", "v", f.row_number().over(window).alias("n"))


SHUFFLE_FREE: dict[str, Query] = {
    "group": lambda t: t["a"].groupBy("k").agg(f.sum("v"), f.max("g")),
    "group by more": lambda t: t["a"].groupBy("g", "k").count(),
    "distinct": lambda t: t["a"].select("k").distinct(),
    "distinct of all columns": lambda t: t["a"].distinct(),
    "count distinct": lambda t: t["a"].groupBy("k").agg(f.countDistinct("g")),
    "window": ranked,
    "drop duplicates": lambda t: t["a"].dropDuplicates(["k", "g"]),
    "having": lambda t: t["a"].where("v > 20").groupBy("k").count().where("count > 3"),
    "group twice": lambda t: t["a"].groupBy("k", "g").count().groupBy("k").agg(f.max("count")),
    "renamed": lambda t: t["a"].withColumnRenamed("k", "x").groupBy("x").count(),
    **{
        f"{how} join": joined("a", "b", how)
        for how in ("inner", "left", "right", "full", "left_semi", "left_anti")
    },
    "join, then group": lambda t: joined("a", "b")(t).groupBy("k").agg(f.sum("w")),
    "aggregates joined": lambda t: (
        t["a"].groupBy("k").count().join(t["b"].groupBy("k").agg(f.sum("w")), "k")
    ),
    "self-join": lambda t: t["a"].alias("x").join(t["a"].alias("y"), "k").select("k", "x.v", "y.g"),
    "finer with coarser": joined("a", "c"),
    "coarser with finer": joined("c", "a", "left"),
    "three of two sizes": lambda t: (
        joined("a", "c")(t).join(t["b"].selectExpr("k", "w AS u"), "k", "left").groupBy("k").count()
    ),
    "sizes with a common divisor": joined("a", "e"),
    "sizes with a common divisor, outer": joined("e", "a", "full"),
    "three with a common divisor": lambda t: joined("a", "e", "left")(t).join(
        t["c"].selectExpr("k", "w AS u"), "k"
    ),
    "four with a common divisor": lambda t: (
        joined("r", "e")(t)
        .join(joined("a", "c")(t).selectExpr("k", "w AS u"), "k", "left_semi")
        .groupBy("k")
        .count()
    ),
    "aggregates with a common divisor": lambda t: (
        t["a"].groupBy("k").count().join(t["e"].groupBy("k", "g").agg(f.sum("w")), "k", "full")
    ),
    "two keys": joined("m", "n", on=["k", "g"]),
    "two keys in the other order": joined("n", "m", "left_semi", on=["g", "k"]),
    "two keys, with a condition in the other order": lambda t: (
        t["m"].alias("x").join(t["n"].alias("y"), f.expr("x.g = y.g AND x.k = y.k"), "left")
    ).select("x.k", "y.g", "v", "w"),
    **{
        f"{how} join by more than the keys": joined("a", "b", how, ["k", "g"])
        for how in ("inner", "left", "right", "full", "left_semi", "left_anti")
    },
    "more than the keys, the key last": joined("a", "b", on=["g", "k"]),
    "more than the keys with a common divisor": joined("e", "a", "left", ["g", "k"]),
    "more than two keys": lambda t: (
        t["m"].alias("x").join(t["n"].alias("y"), f.expr("x.v = y.w AND x.g = y.g AND x.k = y.k"))
    ).select("x.k", "y.g", "v", "w"),
    "more than the keys, three": lambda t: (
        joined("a", "b", on=["k", "g"])(t)
        .join(t["c"].selectExpr("k", "g", "w AS u"), ["g", "k"], "left")
        .groupBy("k")
        .agg(f.sum("u"))
    ),
    "two keys, grouped": lambda t: t["m"].groupBy("g", "k").agg(f.sum("v")),
    "in": lambda t: t["a"].where(f.col("k").isin(list(range(40)))).groupBy("k").count(),
    "co-grouped union": lambda t: (
        t["a"].select("k").unionAll(t["b"].select("k")).groupBy("k").count()
    ),
    "a union of three sizes": lambda t: united(t, "ace").groupBy("k").agg(f.count("*"), f.max("g")),
    "a union joined": lambda t: united(t, "ae").join(t["b"].select("k", "w"), "k", "left"),
    "a union with a join": lambda t: (
        united(t, "ae").unionAll(joined("r", "c", "left_semi")(t).select("k", "g")).distinct()
    ),
    "a cogroup": lambda t: cogrouped(t, "a", "b"),
    "a cogroup with a common divisor": lambda t: cogrouped(t, "a", "e"),
}


def united(t: dict[str, Any], names: str) -> Any:
    return reduce(lambda left, right: left.unionAll(right), [t[n].select("k", "g") for n in names])


def cogrouped(t: dict[str, Any], left: str, right: str) -> Any:
    def sizes(key: Any, one: Any, other: Any) -> Any:
        import pandas as pd

        return pd.DataFrame({"k": [key[0]], "m": [len(one)], "n": [len(other)]})

    groups = t[left].groupBy("k").cogroup(t[right].groupBy("k"))
    return groups.applyInPandas(sizes, "k LONG, m LONG, n LONG")


@pytest.mark.parametrize("name", SHUFFLE_FREE)
def test_no_shuffle(
    name: str, exchanges: dict[str, Any], tables: dict[str, Any], expected: Any, aqe: None
) -> None:
    answer = Answer(SHUFFLE_FREE[name](exchanges))
    assert answer.rows == expected(name, lambda: SHUFFLE_FREE[name](tables))
    assert answer.shuffles == 0, answer.plan
    assert all(answer.scans)


def exists(t: dict[str, Any]) -> Any:
    wanted = t["b"].where("w % 3 = 0").select("k")
    return t["a"].join(wanted, "k", "left_semi").groupBy("g").count()


# For each query, the number of shuffles and the partitions of each scan.
SOME: dict[str, tuple[Query, int, list[int]]] = {
    "another table": (lambda t: t["a"].join(t["table"], "k"), 1, [8]),
    "another table, outer": (lambda t: t["table"].join(t["a"], "k", "full"), 1, [8]),
    "another column": (lambda t: t["a"].groupBy("g").count(), 1, [0]),
    "a join, then another column": (exists, 1, [8, 8]),
    "a subset of the keys": (lambda t: t["m"].groupBy("k").count(), 1, [0]),
    "more than the keys with another table": (
        lambda t: t["a"].join(t["table"].withColumn("v", f.col("w")), ["v", "k"], "full"),
        1,
        [8],
    ),
    # Adaptive execution plans these again when the shuffle of the table has run.
    "more than the keys, then another table": (
        lambda t: joined("a", "b", on=["k", "g"])(t).join(
            t["table"].selectExpr("k", "w AS u"), "k"
        ),
        1,
        [8, 8],
    ),
    "a common divisor, then another table": (
        lambda t: joined("a", "e", "left")(t).join(t["table"].selectExpr("k", "w AS u"), "k"),
        1,
        [2, 2],
    ),
    "fewer than the keys": (joined("m", "n"), 2, [0, 0]),
    "one exchange by a key, one by two": (joined("a", "m", "left_semi", ["k", "g"]), 1, [8, 0]),
    "another type": (lambda t: t["a"].join(t["d"].drop("g"), "k"), 1, [8, 0]),
    "an expression": (lambda t: t["a"].groupBy(f.col("k") + 1).count(), 1, [0]),
    "sizes without a common divisor": (joined("a", "p"), 1, [8, 0]),
    "sizes with a common divisor that is too small": (joined("q", "r", "left_semi"), 1, [0, 12]),
    "sizes without a common divisor below another join": (
        lambda t: joined("a", "p")(t).join(t["e"].selectExpr("k", "w AS u"), "k"),
        2,
        [8, 0, 0],
    ),
    "a union of sizes without a common divisor": (
        lambda t: united(t, "ap").groupBy("k").count(),
        1,
        [0, 0],
    ),
    # Only the join uses the partitions, so the union does not reduce them.
    "joins in a union": (
        lambda t: joined("a", "b", "left_semi")(t).unionAll(joined("e", "e", "left_anti")(t)),
        0,
        [8, 8, 6, 6],
    ),
    "a shuffle with fewer partitions": (
        lambda t: t["a"].join(t["table"].repartition(4, "k").groupBy("k").agg(f.sum("w")), "k"),
        1,
        [4],
    ),
    "a shuffle without a common divisor": (
        lambda t: t["a"].join(t["table"].repartition(3, "k").groupBy("k").agg(f.sum("w")), "k"),
        2,
        [8],
    ),
    "keys that were hashed in another order": (joined("m", "o", on=["k", "g"]), 1, [6, 0]),
    "keys in another order, named in another order": (
        joined("m", "o", "full", ["g", "k"]),
        1,
        [6, 0],
    ),
    "keys in another order, and more": (
        lambda t: t["o"].join(t["m"].withColumnRenamed("v", "w"), ["w", "k", "g"], "left"),
        1,
        [6, 0],
    ),
    "everything": (lambda t: t["a"].agg(f.sum("v")), 1, [0]),
    "sorted": (lambda t: t["a"].orderBy("v"), 1, [0]),
    "rows alone": (lambda t: t["a"].where("v > 7").select("v"), 0, [0]),
}


@pytest.mark.parametrize("name", SOME)
def test_shuffles_where_they_are_needed(
    name: str,
    exchanges: dict[str, Any],
    tables: dict[str, Any],
    expected: Any,
    aqe: None,
) -> None:
    query, shuffles, layouts = SOME[name]
    other = {"table": tables["b"].drop("g")}
    answer = Answer(query({**exchanges, **other}))
    assert answer.rows == expected(name, lambda: query({**tables, **other}))
    assert (answer.shuffles, answer.scans) == (shuffles, layouts), answer.plan


@pytest.mark.parametrize("required", ["true", "false"])
def test_joins_by_more_than_the_keys_follow_a_rule_that_the_user_sets(
    required: str, spark: Any, exchanges: dict[str, Any], tables: dict[str, Any], aqe: None
) -> None:
    with conf(spark, spark_sql_requireAllClusterKeysForCoPartition=required):
        answer = Answer(exchanges["a"].join(exchanges["b"], ["k", "g"]))
        assert answer.rows == rows(tables["a"].join(tables["b"], ["k", "g"]))
        assert (answer.shuffles, answer.scans) == (
            (2, [0, 0]) if required == "true" else (0, [8, 8])
        )


def test_joins_of_other_tables_in_the_query_keep_the_rule_of_spark(
    tables: dict[str, Any], exchanges: dict[str, Any], aqe: None
) -> None:
    def query(t: dict[str, Any]) -> Any:
        left, right = (tables[n].select("k", "g").repartition(5, "k") for n in "bc")
        return left.join(right, ["k", "g"], "left_anti").unionAll(t["a"].select("k", "g"))

    answer = Answer(query(exchanges).groupBy("k").count())
    assert answer.rows == rows(query(tables).groupBy("k").count())
    shuffles = [rest for name, rest in answer.plan if name == "Exchange"]
    assert sum(bool(re.search(r"hashpartitioning\(k#\d+L, g#", rest)) for rest in shuffles) == 2


def test_a_scan_alone_keeps_its_few_tasks(exchanges: dict[str, Any]) -> None:
    assert exchanges["a"].rdd.getNumPartitions() == 1
    assert exchanges["a"].groupBy("k").count().rdd.getNumPartitions() == 8


def test_repartitioning_as_the_exchange_is_costs_nothing(
    spark: Any, exchanges: dict[str, Any], frames: dict[str, Any], aqe: None
) -> None:
    same = exchanges["a"].repartition(8, "k")
    assert same.rdd.getNumPartitions() == 8
    placed = same.select(f.spark_partition_id().alias("p"), f.expr("PMOD(HASH(k), 8) AS q"))
    assert placed.where("p != q").count() == 0
    assert rows(same) == rows(frames["a"])
    assert exchanges["a"].repartition(5, "k").rdd.getNumPartitions() == 5


def test_the_planner_can_be_switched_off(
    spark: Any, exchanges: dict[str, Any], frames: dict[str, Any]
) -> None:
    with conf(spark, spark_ffq_planner_enabled="false"):
        answer = Answer(exchanges["a"].groupBy("k").count())
        assert answer.rows == rows(frames["a"].groupBy("k").count())
        assert (answer.shuffles, answer.scans) == (1, [0])


def test_broadcasts_stay_and_keep_the_partitions_of_the_other_side(
    exchanges: dict[str, Any], frames: dict[str, Any], aqe: None
) -> None:
    def query(t: Any) -> Any:
        return t.join(f.broadcast(frames["b"].drop("g")), "k").groupBy("k").agg(f.sum("w"))

    answer = Answer(query(exchanges["a"]))
    assert answer.rows == rows(query(frames["a"]))
    assert (answer.shuffles, answer.count("BroadcastExchange")) == (0, 1)
    assert answer.scans == [8]


SUBQUERIES = {
    "in": "SELECT k, COUNT(*) FROM a WHERE k IN (SELECT k FROM b WHERE w > 100) GROUP BY k",
    "not in": "SELECT k, v FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL AND w < 90)",
    "exists": "SELECT COUNT(*) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND w > v)",
    "scalar": "SELECT k FROM a GROUP BY k HAVING SUM(v) > (SELECT AVG(s) FROM "
    "(SELECT k, SUM(w) AS s FROM b GROUP BY k))",
    "correlated": "SELECT k, v, (SELECT MAX(w) FROM b WHERE b.k = a.k) AS m FROM a",
    "common table": "WITH t AS (SELECT k, SUM(v) AS s FROM a GROUP BY k) "
    "SELECT x.k, x.s, y.s AS z FROM t x JOIN t y ON x.k = y.k",
    "except": "SELECT k FROM a EXCEPT SELECT k FROM b",
    "intersect": "SELECT k, g FROM a INTERSECT SELECT k, g FROM b",
}


@pytest.mark.parametrize("name", SUBQUERIES)
def test_subqueries(
    name: str,
    spark: Any,
    exchanges: dict[str, Any],
    tables: dict[str, Any],
    expected: Any,
    aqe: None,
) -> None:
    def query(of: dict[str, Any]) -> Any:
        for table in "ab":
            of[table].createOrReplaceTempView(table)
        return spark.sql(SUBQUERIES[name])

    assert rows(query(exchanges)) == expected(f"subquery {name}", lambda: query(tables))


def test_cached_and_reused(
    spark: Any, exchanges: dict[str, Any], frames: dict[str, Any], aqe: None
) -> None:
    """Cached scans and cached results stay correct, and two sides of a join share one shuffle."""
    expected = rows(frames["a"].groupBy("k").count())
    cached = exchanges["a"].where("v >= 0").cache()
    grouped = exchanges["a"].groupBy("k").count().cache()
    try:
        for _ in range(2):
            assert rows(cached.groupBy("k").count()) == expected
            assert rows(grouped) == expected
        assert rows(grouped.join(exchanges["b"], "k")) == rows(
            frames["a"].groupBy("k").count().join(frames["b"], "k")
        )
    finally:
        cached.unpersist()
        grouped.unpersist()

    def twice(t: Any) -> Any:
        half = t.groupBy("g").agg(f.sum("v").alias("s"))
        return half.join(half.withColumnRenamed("s", "z"), "g")

    answer = Answer(twice(exchanges["a"]))
    assert answer.rows == rows(twice(frames["a"]))
    assert answer.count("ReusedExchange") == 1, answer.plan


def test_cached_rows_joined_with_finer_exchanges(
    exchanges: dict[str, Any], frames: dict[str, Any], aqe: None
) -> None:
    cached = exchanges["c"].groupBy("k").agg(f.sum("w").alias("s")).cache()
    expected = frames["c"].groupBy("k").agg(f.sum("w").alias("s"))
    try:
        cached.count()
        for name, shuffles, partitions in (("a", 0, 4), ("e", 1, 6)):
            answer = Answer(exchanges[name].join(cached, "k", "full"))
            assert answer.rows == rows(frames[name].join(expected, "k", "full"))
            assert (answer.shuffles, answer.scans[0]) == (shuffles, partitions), answer.plan
    finally:
        cached.unpersist()


def test_partitions_without_rows_and_without_parts(
    spark: Any, frames: dict[str, Any], root: str, aqe: None
) -> None:
    """Two keys leave most of the 16 partitions empty, and filters empty more of them."""
    few = frames["a"].where("k IN (1, 2)")
    write(few, root, keys="k", partitions=16)
    exchange = read(spark, root)
    for condition in ("TRUE", "k = 1", "k = 1000", "v > 380"):
        query = exchange.where(condition).groupBy("k").agg(f.sum("v"))
        assert rows(query) == rows(few.where(condition).groupBy("k").agg(f.sum("v")))
        joined = exchange.where(condition).join(exchange.drop("g"), ["k", "v"], "right")
        assert rows(joined) == rows(few.where(condition).join(few.drop("g"), ["k", "v"], "right"))
    some = read(spark, root, partitions="0-7").groupBy("k").count()
    assert rows(some) == rows(few.where("PMOD(HASH(k), 16) < 8").groupBy("k").count())


KEYS = {
    "int": "CAST(id % 50 AS INT)",
    "short": "CAST(id % 50 AS SMALLINT)",
    "decimal": "CAST(id % 50 AS DECIMAL(9, 2))",
    "long decimal": "CAST(id % 50 AS DECIMAL(30, 5))",
    "string": "CONCAT('key ', id % 50)",
    "binary": "CAST(CONCAT('key ', id % 50) AS BINARY)",
    "date": "DATE_ADD(DATE'2020-01-01', CAST(id % 50 AS INT))",
    "timestamp": "TIMESTAMP'2020-01-01 00:00:00' + MAKE_DT_INTERVAL(0, id % 50)",
    "boolean": "id % 2 = 0",
    "double": "IF(id % 3 = 0, -0.0D, IF(id % 3 = 1, 0.0D, DOUBLE('NaN')))",
    "struct": "NAMED_STRUCT('x', id % 50)",
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(kind: str, spark: Any, root: str) -> None:
    """Spark groups some types, such as floats, by another form of the key; these need a shuffle."""
    frame = spark.range(0, 200, 1, 2).selectExpr(f"{KEYS[kind]} AS k", "id AS v")
    write(frame, root, keys="k", partitions=4)
    exchange = read(spark, root)
    answer = Answer(exchange.groupBy("k").agg(f.sum("v")))
    assert answer.rows == rows(frame.groupBy("k").agg(f.sum("v")))
    assert answer.shuffles == (kind in ("double", "struct"))
    join = Answer(exchange.join(frame.withColumnRenamed("v", "w"), "k").where("v < w"))
    assert (
        len(join.rows) == frame.join(frame.withColumnRenamed("v", "w"), "k").where("v < w").count()
    )


def test_other_hashes_and_reads_without_the_key_are_plain(
    spark: Any, exchanges: dict[str, Any], frames: dict[str, Any], root: str
) -> None:
    write(frames["a"], root, keys="k", partitions=8, hash="ffq")
    answer = Answer(read(spark, root).groupBy("k").count())
    assert answer.rows == rows(frames["a"].groupBy("k").count())
    assert (answer.shuffles, answer.scans) == (1, [0])


def test_streams_joined_with_an_exchange(
    spark: Any, exchanges: dict[str, Any], frames: dict[str, Any], root: str, tmp_path: Any
) -> None:
    write(frames["b"], root, keys="k", partitions=8)
    stream = spark.readStream.format("ffqshuffle").load(root)
    joined = stream.join(exchanges["a"].drop("g"), "k")
    writer = joined.writeStream.format("memory").queryName("joined").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    plan = nodes_in(query._jsq.streamingQuery().lastExecution().executedPlan().toString())
    assert [node for node, _ in plan].count("Exchange") == 1, plan
    assert rows(spark.table("joined")) == rows(frames["b"].join(frames["a"].drop("g"), "k"))


def misplacing_source(swap: bool) -> type:
    """Return a source that swaps two read tasks; a local class, so that workers can unpickle it."""
    from ffq_spark.spark.reader import ExchangeReader
    from ffq_spark.spark.source import FfqShuffleSource

    class MisplacingReader(ExchangeReader):
        def partitions(self) -> Any:
            note, *tasks = super().partitions()
            if len(tasks) > 1 and swap:
                tasks[0], tasks[1] = tasks[1], tasks[0]
            return [note, *tasks]

    class MisplacingSource(FfqShuffleSource):
        def reader(self, schema: Any) -> Any:
            return MisplacingReader(self.store(), self._read_options(), schema, self._newest)

    return MisplacingSource


def test_tasks_in_the_wrong_place_are_found(spark: Any, frames: dict[str, Any], root: str) -> None:
    write(frames["a"], root, keys="k", partitions=8)
    table = frames["b"].drop("g")
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    for swap in (False, True):
        session.dataSource.register(misplacing_source(swap))
        exchange = session.read.format("ffqshuffle").load(root)
        table.createOrReplaceGlobalTempView("other")
        query = exchange.join(session.table("global_temp.other"), "k")
        if swap:
            assert "FFQ_MISPLACED" in failure(query.collect)
        else:
            assert rows(query) == rows(frames["a"].join(table, "k"))
