"""Filters prune only parts without matching rows, and planning lists only records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from spark_rows import bare_source, failure, read, rows, write
from stored_parts import stored_parts

from ffq_spark import Exchange
from ffq_spark.spark.filters import EXACT_SINCE

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

FILTERS = {
    "equality of an integer": "k = 5",
    "equality of another integer type": "k = 5L AND s = 5",
    "equality with nothing": "k = 1000",
    "equality that is null": "k = NULL",
    "null-safe equality": "k <=> 5",
    "null-safe equality with null": "k <=> NULL",
    "is null": "k IS NULL",
    "is not null": "k IS NOT NULL",
    "in": "k IN (1, 5, 9)",
    "in, with null": "k IN (1, NULL)",
    "in, of many": f"k IN ({', '.join(str(i) for i in range(0, 200, 3))})",
    "not in": "k NOT IN (1, 5, 9)",
    "unequal": "k != 5",
    "ranges": "k > 3 AND k <= 9 AND v >= 10 AND v < 500",
    "empty range": "k > 9 AND k < 3",
    "between": "v BETWEEN 100 AND 110",
    "or of two columns": "k = 5 OR v = 17",
    "or of one column": "k = 5 OR k = 6",
    "or with null": "k = 5 OR k IS NULL",
    "not": "NOT (k = 5 OR v > 100)",
    "and of contradictions": "k = 5 AND k = 6",
    "and of overlapping lists": "k IN (1, 5) AND k IN (5, 9)",
    "nested and, or, not": "(k = 5 AND v > 50) OR NOT (v < 590 OR name IS NULL)",
    "string": "name = 'name 5'",
    "string with odd letters": "name = 'näme 😀'",
    "string prefix": "name LIKE 'name 1%'",
    "string range": "name > 'name 5' AND name <= 'name 7'",
    "double": "d = 2.5",
    "double zero": "d = 0.0",
    "double negative zero": "d = -0.0D",
    "double NaN": "d = DOUBLE('NaN')",
    "double above NaN": "d >= DOUBLE('NaN')",
    "double below NaN": "d < DOUBLE('NaN')",
    "double range holds NaN": "d > 100",
    "double infinity": "d >= DOUBLE('Infinity')",
    "float": "f = 0.1F",
    "float against a double": "f = 0.1D",
    "decimal": "m = 5.50BD",
    "decimal of another scale": "m = 5.5BD",
    "decimal out of range": "m < 123456789012.345BD",
    "integer out of range": "s < 100000",
    "date": "day = DATE'2020-01-06'",
    "date range": "day > DATE'2020-03-01'",
    "date against text": "day = '2020-01-06'",
    "timestamp": "t = TIMESTAMP'2020-01-01 05:00:00'",
    "timestamp range": "t < TIMESTAMP'2020-01-01 05:00:00'",
    "timestamp after Python's last year": "t < TIMESTAMP'9999-12-31 23:59:59 -05:00'",
    "timestamp of no Python year": "t IN (TIMESTAMP'2020-01-01 05:00:00', TIMESTAMP'+12000-01-01')",
    "date after Python's last year": "day < DATE'+12000-01-01'",
    "timestamp without zone": "n = TIMESTAMP_NTZ'2020-01-01 05:00:00'",
    "binary": "b = X'05'",
    "boolean": "o",
    "boolean equality": "o = false",
    "interval": "i = INTERVAL '5' DAY",
    "interval range": "i > INTERVAL '190' DAY",
    "inside a struct": "p.x = 5",
    "two keys": "k = 5 AND name = 'name 5'",
    "constant": "1 = 0",
}

COLUMNS = [
    "CAST(IF(id % 10 = 0, NULL, id % 200) AS INT) AS k",
    "id AS v",
    "CAST(id AS SMALLINT) AS s",
    "CASE id % 10 WHEN 0 THEN NULL WHEN 1 THEN 'näme 😀' ELSE CONCAT('name ', id % 200) END "
    "AS name",
    "CASE id % 10 WHEN 0 THEN NULL WHEN 1 THEN DOUBLE('NaN') WHEN 2 THEN -0.0D WHEN 3 THEN 0.0D "
    "WHEN 4 THEN DOUBLE('Infinity') ELSE id / 2 END AS d",
    "CAST(id / 10 AS FLOAT) AS f",
    "CAST(id + 0.5 AS DECIMAL(10, 2)) AS m",
    "DATE_ADD(DATE'2020-01-01', CAST(id AS INT)) AS day",
    "TIMESTAMP'2020-01-01 00:00:00' + MAKE_DT_INTERVAL(0, id) AS t",
    "TIMESTAMP_NTZ'2020-01-01 00:00:00' + MAKE_DT_INTERVAL(0, id) AS n",
    "UNHEX(LPAD(HEX(id % 256), 2, '0')) AS b",
    "id % 3 = 0 AS o",
    "CAST(MAKE_DT_INTERVAL(id) AS INTERVAL DAY) AS i",
    "NAMED_STRUCT('x', id % 50) AS p",
]
# Columns that are the keys of one exchange each, so that equality on them selects partitions.
KEYS = ["k", "name", "d", "f", "m", "day", "t", "n", "b", "i", "k,name"]


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.range(0, 600, 1, 3).selectExpr(*COLUMNS)


@pytest.fixture(scope="module")
def expected(frame: Any) -> dict[str, list[int]]:
    """Return the row numbers that match each filter, as Spark evaluates it in a column."""
    conditions = [f"{condition} AS `{name}`" for name, condition in FILTERS.items()]
    evaluated = frame.selectExpr("v AS `row`", *conditions).collect()
    return {name: sorted(row["row"] for row in evaluated if row[name]) for name in FILTERS}


@pytest.fixture(scope="module")
def roots(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write the same rows by every key, with statistics of all columns that support them."""
    root_by_keys = {}
    for key in KEYS:
        root_by_keys[key] = str(tmp_path_factory.mktemp("exchange") / "root")
        write(frame, root_by_keys[key], keys=key, partitions=16, statistics="all")
    return root_by_keys


def numbers(df: Any) -> list[int]:
    return sorted(row.v for row in df.select("v").collect())


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    """Enable Spark's own filter push-down for all Python sources of the session."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def relevant(condition: str, key: str) -> bool:
    """Return whether a filter concerns a key; the first key is tested with all filters."""
    return key == KEYS[0] or any(f"{column} " in f"{condition} " for column in key.split(","))


@pytest.mark.parametrize("key", KEYS)
def test_filtered_reads_give_the_rows_that_meet_the_filter(
    spark: Any, expected: dict[str, list[int]], roots: dict[str, str], key: str
) -> None:
    """Filters are equality, lists, ranges, nulls and NaN of every type, with AND, OR and NOT."""
    assert spark.conf.get(PUSHDOWN) == "false"
    for name, condition in FILTERS.items():
        if relevant(condition, key):
            assert numbers(read(spark, roots[key]).where(condition)) == expected[name], name


def test_with_sparks_push_down_on_filters_give_the_same_rows(
    spark: Any, expected: dict[str, list[int]], roots: dict[str, str], pushdown: None
) -> None:
    for name in ("in", "is null", "ranges", "or of two columns", "string", "two keys"):
        assert numbers(read(spark, roots["k"]).where(FILTERS[name])) == expected[name], name
    assert numbers(read(spark, roots["k,name"])) == list(range(600))


def test_a_filter_does_not_outlive_its_query(
    spark: Any, expected: dict[str, list[int]], roots: dict[str, str]
) -> None:
    """Queries that filter one frame in different ways do not affect each other."""
    exchange = read(spark, roots["k"])
    for name in ("equality of an integer", "between", "or of two columns", "string prefix"):
        assert numbers(exchange.where(FILTERS[name])) == expected[name], name
        assert numbers(exchange) == list(range(600)), f"after {name}"


def test_scans_of_one_frame_keep_their_own_filters(spark: Any, roots: dict[str, str]) -> None:
    """One query may scan a frame with two filters, or with and without a filter."""
    exchange = read(spark, roots["k"])
    low, high = exchange.where("v < 10"), exchange.where("v >= 590")
    assert numbers(low.union(high)) == [*range(10), *range(590, 600)]
    assert numbers(low.union(exchange)) == sorted([*range(10), *range(600)])
    assert low.join(exchange, "v").count() == 10
    assert low.crossJoin(high.selectExpr("v AS w")).count() == 100


def test_columns_that_a_query_does_not_need_are_not_asked_for(
    spark: Any, roots: dict[str, str]
) -> None:
    """A scan has only the needed columns, nested ones included; a count reads one column."""
    exchange = read(spark, roots["k"])
    for query, needed in (
        (exchange.select("v"), {"v"}),
        (exchange.where("name = 'name 5'").select("d"), {"name", "d"}),
        (exchange.select("p.x"), {"p"}),
    ):
        assert scanned(query) == needed
    assert len(scanned(exchange.selectExpr("COUNT(*)"))) == 1
    assert exchange.count() == 600
    assert exchange.select("p.x").distinct().count() == 50
    assert exchange.select("p", "v", "k").columns == ["p", "v", "k"]
    assert (
        read(spark, roots["k"], metadataColumns="true").select("_ffq_step").distinct().count() == 1
    )


def scanned(query: Any) -> set[str]:
    """Return the columns that the scan of a query returns."""
    plan = query._jdf.queryExecution().optimizedPlan()
    (leaf,) = [plan.collectLeaves().apply(i) for i in range(plan.collectLeaves().size())]
    return {leaf.output().apply(i).name() for i in range(leaf.output().size())}


def keep_only(root: str, partition: int) -> None:
    """Destroy the parts of all other partitions."""
    for part in stored_parts(root):
        if part.partition != partition:
            part.destroy()


def test_equality_on_the_key_opens_one_partition_only(spark: Any, frame: Any, root: str) -> None:
    """With all other parts deleted, the filtered read succeeds and the full read fails."""
    write(frame, root, keys="k", partitions=16, statistics="none")
    partition = frame.selectExpr("PMOD(HASH(5), 16) AS p").first().p
    keep_only(root, partition)
    for condition in ("k = 5", "k <=> 5", "k IN (5)", "k = 5 AND v > 3"):
        filtered = read(spark, root).where(condition)
        assert rows(filtered) == rows(frame.where(condition))
        assert filtered.count() == 3
    for condition in ("k = 5 OR v = 17", "k > 5", "TRUE"):
        message = failure(read(spark, root).where(condition).collect)
        assert "FFQ_CORRUPT_PART" in message
        assert root in message


def test_null_keys_are_looked_for_in_their_own_partition(spark: Any, frame: Any, root: str) -> None:
    write(frame, root, keys="k", partitions=16, statistics="none")
    keep_only(root, frame.selectExpr("PMOD(HASH(CAST(NULL AS INT)), 16) AS p").first().p)
    assert rows(read(spark, root).where("k IS NULL")) == rows(frame.where("k IS NULL"))


def test_ranges_leave_parts_unread_by_their_statistics(spark: Any, root: str) -> None:
    """Two map tasks have disjoint values; a filter on the values of one skips the other's parts."""
    df = spark.range(0, 200, 1, 2).selectExpr("id % 7 AS k", "id AS v")
    write(df, root, keys="k", partitions=4)
    for part in Exchange(root).parts().to_pylist():
        if part["map_task"] == 0:
            Path(root, part["file"]).unlink(missing_ok=True)
    assert rows(read(spark, root).where("v >= 150")) == rows(df.where("v >= 150"))
    assert "FFQ_CORRUPT_PART" in failure(read(spark, root).where("v >= 50").collect)


def counting_source(log: str) -> type:
    """Return a source that logs every listing; a local class, so that workers can unpickle it."""
    from ffq_spark.spark.source import FfqShuffleSource
    from ffq_spark.store import Store

    class CountingStore(Store):
        def scan(self, path: str) -> Any:
            with open(log, "a") as file:
                file.write(path + "\n")
            return super().scan(path)

    class CountingSource(FfqShuffleSource):
        @classmethod
        def name(cls) -> str:
            return "ffqcounting"

        def store(self, *, unsafe_commit: bool = False) -> Store:
            return CountingStore(dict(self.options)["path"], {}, unsafe_commit=unsafe_commit)

    return CountingSource


def test_reads_are_planned_without_listing_data(
    spark: Any, roots: dict[str, str], tmp_path: Path
) -> None:
    """Planning lists only records, for any number of parts."""
    log = tmp_path / "listings"
    spark.dataSource.register(counting_source(str(log)))
    exchange = spark.read.format("ffqcounting").load(roots["k"])
    assert numbers(exchange) == list(range(600))
    exchange = spark.read.format("ffqcounting").load(roots["k"])
    assert numbers(exchange.where("k = 5")) == [5, 205, 405]
    listed = log.read_text().split()
    assert "_ffq/steps" in listed
    assert [path for path in listed if path.startswith("shuffle")] == []


DAYS = "DATE_ADD(DATE'1582-10-01', CAST(id AS INT)) AS d"
OLD_FILTERS = [
    *(f"{of} {op} {value}" for of, value in (
        ("d", "DATE'1582-10-10'"),
        ("d", "DATE'1582-10-15'"),
        ("t", "TIMESTAMP'1582-10-10 12:00:00'"),
        ("t", "TIMESTAMP'1582-10-15 12:00:00'"),
    ) for op in ("=", "<=>", "<", "<=", ">", ">=")),
    "d IN (DATE'1582-10-05', DATE'1582-10-14', DATE'1582-11-01')",
    "d IN (" + ", ".join(f"DATE'1582-10-{day:02}'" for day in range(3, 17)) + ")",
]  # fmt: skip


@pytest.fixture(scope="module")
def old_days(spark: Any) -> Any:
    """Make days and times around the ten days that the Gregorian calendar reform skipped."""
    return (
        spark.range(40)
        .selectExpr(DAYS, "id AS v")
        .selectExpr("d", "CAST(d AS TIMESTAMP) + INTERVAL '12' HOUR AS t", "v")
    )


@pytest.mark.parametrize("java8", ["false", "true"])
@pytest.mark.parametrize("key", ["d", "t"])
def test_days_that_the_calendar_reform_left_out(
    spark: Any, old_days: Any, root: str, key: str, java8: str
) -> None:
    """Rows and filters of Spark have the days 1582-10-05 to -14; java.sql.Date does not."""
    write(old_days, root, keys=key, partitions=16)
    exchange = read(spark, root)
    spark.conf.set("spark.sql.datetime.java8API.enabled", java8)
    try:
        for condition in OLD_FILTERS:
            assert numbers(exchange.where(condition)) == numbers(old_days.where(condition)), (
                condition
            )
    finally:
        spark.conf.unset("spark.sql.datetime.java8API.enabled")


@pytest.mark.parametrize("key", ["d", "t"])
def test_a_join_prunes_by_days_that_the_calendar_reform_left_out(
    spark: Any, old_days: Any, root: str, key: str
) -> None:
    write(old_days, root, keys=key, partitions=16)
    small = old_days.selectExpr(key, "v AS w").where("w IN (7, 9)")
    joined = read(spark, root).join(small, key)
    assert sorted((row.v, row.w) for row in joined.select("v", "w").collect()) == [(7, 7), (9, 9)]


def test_filters_by_strings_that_are_no_text(spark: Any, root: str) -> None:
    """Spark's strings may hold any bytes, which Python's str cannot represent."""
    frame = spark.range(40).selectExpr("CAST(UNHEX(HEX(id + 220)) AS STRING) AS s", "id AS v")
    write(frame, root, keys="s", partitions=16, statistics="none")
    exchange = read(spark, root)
    for condition in ("s = CAST(X'FF' AS STRING)", "s > CAST(X'F0' AS STRING)"):
        assert numbers(exchange.where(condition)) == numbers(frame.where(condition)), condition


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize("key", ["d", "t"])
def test_without_the_plugin_old_days_do_not_prune(
    spark: Any, old_days: Any, root: str, key: str
) -> None:
    """Without the plugin, Spark passes java.sql values, which may stand for other days."""
    write(old_days, root, keys=key, partitions=16)
    bare = bare_source(spark)
    for condition in [c for c in OLD_FILTERS if c[0] == key and "1582-10-15" not in c][::2]:
        exchange = spark.read.format(bare).option("pruneByFilters", "true").load(root)
        assert numbers(exchange.where(condition)) == numbers(old_days.where(condition)), condition


@pytest.mark.usefixtures("pushdown")
def test_without_the_plugin_filters_prune_if_asked_to(spark: Any, frame: Any, root: str) -> None:
    """Without the plugin, only values that Java's types represent exactly prune parts."""
    write(frame, root, keys="day", partitions=16, statistics="none")
    keep_only(root, frame.selectExpr("PMOD(HASH(DATE'2020-01-06'), 16) AS p").first().p)
    bare = bare_source(spark)
    exchange = spark.read.format(bare).option("pruneByFilters", "true").load(root)
    assert numbers(exchange.where("day = DATE'2020-01-06'")) == [5]
    switch = spark._jvm.org.apache.spark.sql.catalyst.util.RebaseDateTime.lastSwitchGregorianTs()
    assert datetime.fromtimestamp(switch // 10**6, timezone.utc) <= EXACT_SINCE
    invalid = root + ".strings"
    strings = spark.range(40).selectExpr("CAST(UNHEX(HEX(id + 220)) AS STRING) AS s", "id AS v")
    write(strings, invalid, keys="s", partitions=16, statistics="none")
    exchange = spark.read.format(bare).option("pruneByFilters", "true").load(invalid)
    assert numbers(exchange.where("s = CAST(X'FF' AS STRING)")) == [35]
