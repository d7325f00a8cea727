"""Every type of a Spark column is read as it was written, or is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spark_rows import failure, files, loose_schema, read, rows, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

POINT = "X'0101000000000000000000F03F0000000000000040'"
DEEP_ARRAY = "ARRAY(ARRAY(ARRAY(1, NULL), NULL, ARRAY()), NULL)"
DEEP_STRUCT = "NAMED_STRUCT('a', NAMED_STRUCT('b', NAMED_STRUCT('c', 1, 'd', 'x')))"
DEEP_STRUCT_NULL = "NAMED_STRUCT('a', NAMED_STRUCT('b', CAST(NULL AS STRUCT<c: INT, d: STRING>)))"
MIXED = "MAP('k', ARRAY(NAMED_STRUCT('x', 1, 'y', MAP(1, 'one', 2, NULL)), NULL))"

# For each type, SQL expressions of its values; tests add null rows.
TYPES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "tinyint": ["-128Y", "127Y"],
    "smallint": ["-32768S", "32767S"],
    "int": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808L", "9223372036854775807L"],
    "float": ["FLOAT('-0.0')", "FLOAT('NaN')", "FLOAT('-Infinity')", "1.4E-45F"],
    "double": ["DOUBLE('-0.0')", "DOUBLE('NaN')", "DOUBLE('Infinity')", "4.9E-324D"],
    "decimal(10,2)": ["99999999.99BD", "CAST(-0.01 AS DECIMAL(10, 2))"],
    "decimal(38,18)": ["CAST('99999999999999999999.999999999999999999' AS DECIMAL(38, 18))"],
    "decimal(38,0)": ["-99999999999999999999999999999999999999BD"],
    "string": ["''", "'日本語 😀'", "REPEAT('long ', 2000)"],
    "string collate UTF8_LCASE": ["'aB' COLLATE UTF8_LCASE"],
    "binary": ["X''", "X'00FF'"],
    "date": ["DATE'-5000-01-01'", "DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'+99999-01-01'"],
    "timestamp": [
        "TIMESTAMP_MICROS(-9223372036854775808)",
        "TIMESTAMP_MICROS(9223372036854775807)",
        "TIMESTAMP'1582-10-10 00:00:00'",
        "TIMESTAMP'2024-11-03 01:30:00 America/New_York'",
    ],
    "timestamp_ntz": [
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
        "TIMESTAMP_NTZ'+294247-01-10 04:00:54.775807'",
    ],
    "time(6)": ["TIME'00:00:00'", "TIME'23:59:59.999999'"],
    "interval day to second": [
        "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
        "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
    ],
    "interval day": ["INTERVAL '3' DAY"],
    "interval hour to minute": ["INTERVAL '-1:30' HOUR TO MINUTE"],
    "void": ["NULL"],
    "variant": ['PARSE_JSON(\'{"a": [1, null, "x"]}\')', "PARSE_JSON('null')"],
    "geometry(0)": [f"ST_GEOMFROMWKB({POINT})"],
    "geography(4326)": [f"ST_GEOGFROMWKB({POINT})"],
    "array<int>": ["ARRAY(1, NULL, 3)", "CAST(ARRAY() AS ARRAY<INT>)"],
    "array<void>": ["ARRAY()", "ARRAY(NULL)"],
    "array<variant>": ["ARRAY(PARSE_JSON('1'), NULL)"],
    "array<array<array<int>>>": [DEEP_ARRAY, "CAST(ARRAY() AS ARRAY<ARRAY<ARRAY<INT>>>)"],
    "struct<>": ["NAMED_STRUCT()"],
    "struct<a:int,b:struct<>>": ["NAMED_STRUCT('a', 1, 'b', NAMED_STRUCT())"],
    "struct<a:struct<b:struct<c:int,d:string>>>": [DEEP_STRUCT, DEEP_STRUCT_NULL],
    "struct<t:timestamp,n:timestamp_ntz>": [
        "NAMED_STRUCT('t', TIMESTAMP_MICROS(1), 'n', TIMESTAMP_NTZ'2000-01-01 00:00:00')"
    ],
    "map<string,int>": ["MAP('a', 1, 'b', NULL)", "CAST(MAP() AS MAP<STRING, INT>)"],
    "map<int,map<int,map<int,int>>>": ["MAP(1, MAP(2, MAP(3, 4, 5, NULL), 6, NULL))"],
    "map<struct<a:int>,array<date>>": ["MAP(NAMED_STRUCT('a', 1), ARRAY(DATE'2000-01-01'))"],
    "map<string,array<struct<x:int,y:map<int,string>>>>": [MIXED, "MAP('k', NULL)"],
}


# Scans with a column of these types return rows; all other scans return columns.
READ_AS_ROWS = ("time(", "void", "variant", "geo")


def columns(spark: Any, kinds: list[str]) -> Any:
    """Make a row number and columns `v`, `v1`, … of the types: each value twice, then nulls."""
    listed = [[value for value in TYPES[kind] for _ in range(2)] for kind in kinds]
    longest = max(len(values) for values in listed) + 2
    padded = [values + ["NULL"] * (longest - len(values)) for values in listed]
    lines = (f"({i}, {', '.join(row)})" for i, row in enumerate(zip(*padded, strict=True)))
    names = ", ".join(f"v{i or ''}" for i in range(len(kinds)))
    return spark.sql(f"SELECT * FROM VALUES {', '.join(lines)} AS t(id, {names})")


@contextmanager
def conf(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.fixture(scope="module", autouse=True)
def time_type(spark: Any) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_comes_back_as_it_was_written(spark: Any, root: str, kind: str) -> None:
    """Type, values and nulls stay the same, even if only this column is read."""
    df = columns(spark, [kind])
    assert df.schema["v"].dataType.simpleString() == kind
    write(df, root, keys="id", partitions=4)
    exchange = read(spark, root)
    assert loose_schema(exchange) == loose_schema(df)
    assert rows(exchange) == rows(df)
    assert rows(read(spark, root, columns="v")) == rows(df.select("v"))
    assert Exchange(root).verify().ok


@pytest.mark.parametrize("as_rows", [False, True])
def test_what_is_read_can_be_written_again(spark: Any, root: str, as_rows: bool) -> None:
    """A write copies an exchange both as columns and as rows."""
    kinds = [kind for kind in TYPES if any(word in kind for word in READ_AS_ROWS) == as_rows]
    assert len(kinds) > 5
    df, copy = columns(spark, kinds), f"{root}-copy"
    write(df, root, keys="id", partitions=4)
    write(read(spark, root), copy, keys="id", partitions=2)
    assert loose_schema(read(spark, copy)) == loose_schema(df)
    assert rows(read(spark, copy)) == rows(df)


def test_columns_of_parquet_files_arrive_as_they_are(spark: Any, root: str, tmp_path: Path) -> None:
    """The file has dictionaries, nulls and nested values, and more rows than one batch holds."""
    source = str(tmp_path / "source.parquet")
    numbers = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
    spark.range(70_000, numPartitions=1).selectExpr(
        "id",
        *(f"TRY_CAST(id AS {kind}) AS plain_{kind}" for kind in numbers),
        *(f"IF(id % 3 = 0, NULL, CAST(id % 100 AS {kind})) AS coded_{kind}" for kind in numbers),
        "IF(id % 11 = 0, NULL, id % 2 = 0) AS b",
        "IF(id % 13 = 0, NULL, DATE_ADD(DATE'2026-01-01', CAST(id % 400 AS INT))) AS day",
        "IF(id % 17 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS bytes",
        "CAST(NULL AS DOUBLE) AS nothing",
        "id < 200 AS part",
        "IF(id % 7 = 0, NULL, CONCAT('word ', id % 50)) AS s",
        "CAST(id AS STRING) AS t",
        "IF(id % 5 = 0, NULL, CAST(id AS DECIMAL(20, 3))) AS d",
        "TIMESTAMP_MICROS(id) AS at",
        "ARRAY(id, NULL) AS a",
        "NAMED_STRUCT('x', id % 3, 'y', CAST(id AS DOUBLE)) AS p",
        "MAP(CAST(id AS STRING), id) AS m",
    ).write.partitionBy("part").parquet(source)
    written = spark.read.parquet(source)
    with conf(spark, "spark.sql.files.maxPartitionBytes", "1g"):
        write(written, root, keys="id", partitions=4)
    assert rows(read(spark, root)) == rows(written)


def test_columns_of_long_strings_are_cut_into_batches_that_fit(
    spark: Any, root: str, tmp_path: Path
) -> None:
    """Either of two columns may be the longer one, and one value exceeds the size of a batch."""
    source = str(tmp_path / "source.parquet")
    spark.range(60, numPartitions=1).selectExpr(
        "id",
        "IF(id % 9 = 4, NULL, REPEAT(CHAR(97 + id % 26), CAST(id * 20000 AS INT))) AS a",
        "REPEAT(CHAR(65 + id % 26), CAST((60 - id) * 25000 AS INT)) AS b",
        "REPEAT('z', IF(id = 30, 20000000, 10)) AS c",
    ).write.parquet(source)
    written = spark.read.parquet(source)
    write(written, root, keys="id", partitions=4)
    same = ["id", "a = b", "MD5(a) AS a", "MD5(b) AS b", "MD5(c) AS c"]
    assert rows(read(spark, root).selectExpr(*same)) == rows(written.selectExpr(*same))


@pytest.mark.parametrize("read_zone", ["UTC", "Asia/Kolkata"])
def test_timestamps_are_instants_in_any_session_time_zone(
    spark: Any, root: str, read_zone: str
) -> None:
    """Timestamps are written in New York, around the hour that occurs twice, and read elsewhere."""
    zone = "spark.sql.session.timeZone"
    hours = "EXPLODE(SEQUENCE(0, 30)) AS h"
    with conf(spark, zone, "America/New_York"):
        df = spark.sql(f"SELECT {hours}").selectExpr(
            "h",
            "TIMESTAMP'2024-11-02 20:00:00' + MAKE_DT_INTERVAL(0, h) AS t",
            "TIMESTAMP_NTZ'2024-11-02 20:00:00' + MAKE_DT_INTERVAL(0, h) AS n",
        )
        write(df, root, keys="t", partitions=4)
        wanted = df.selectExpr("h", "UNIX_MICROS(t)", "CAST(n AS STRING)").collect()
    with conf(spark, zone, read_zone):
        exchange = read(spark, root)
        moments = exchange.selectExpr("h", "UNIX_MICROS(t)", "CAST(n AS STRING)")
        assert sorted(moments.collect()) == sorted(wanted)
        # The literal names its zone, so it matches only if the instants are right.
        assert exchange.where("t = TIMESTAMP'2024-11-03 05:30:00 UTC' - INTERVAL 30 MINUTE").count()


@pytest.mark.parametrize("writing", ["true", "false"])
@pytest.mark.parametrize("reading", ["true", "false"])
def test_large_and_small_arrow_types_hold_the_same_rows(
    spark: Any, root: str, writing: str, reading: str
) -> None:
    """`useLargeVarTypes` of the session does not change the exchange."""
    large = "spark.sql.execution.arrow.useLargeVarTypes"
    df = spark.sql(
        "SELECT id, CAST(id AS STRING) AS s, CAST(CAST(id AS STRING) AS BINARY) AS b, "
        "'aB' COLLATE UTF8_LCASE AS c, ARRAY('x', NULL) AS a, MAP('k', 'v') AS m, "
        "PARSE_JSON('[1]') AS j, NAMED_STRUCT('s', ARRAY('t')) AS n FROM RANGE(50)"
    )
    with conf(spark, large, writing):
        write(df, root, keys="s,b", partitions=4)
        write(df, root)
    with conf(spark, large, reading):
        exchange = read(spark, root)
        assert loose_schema(exchange) == loose_schema(df)
        assert rows(exchange) == rows(df.union(df))
        assert exchange.where("s = '7'").count() == 2


def test_char_and_varchar_columns_of_a_table_keep_their_declared_type(
    spark: Any, root: str, tmp_path: Any
) -> None:
    """Spark stores these columns as strings, with the length in the column's metadata."""
    spark.sql("SELECT 1 AS id, 'ab   ' AS c, 'cd' AS v").write.parquet(str(tmp_path / "chars"))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW chars (id INT, c CHAR(5), v VARCHAR(5)) USING parquet "
        f"OPTIONS (path '{tmp_path / 'chars'}')"
    )
    df = spark.table("chars")
    assert "char(5)" in df.schema.json()
    write(df, root, keys="c", partitions=4)
    exchange = read(spark, root)
    assert loose_schema(exchange) == loose_schema(df)
    assert rows(exchange) == rows(df)


@pytest.mark.parametrize("kind", ["char(5)", "varchar(5)"])
def test_preserved_char_and_varchar_types_are_refused_by_name(
    spark: Any, root: str, kind: str
) -> None:
    """With `preserveCharVarcharTypeInfo` PySpark has no Arrow type for char and varchar."""
    with conf(spark, "spark.sql.preserveCharVarcharTypeInfo", "true"):
        df = spark.sql(f"SELECT 1 AS id, CAST('ab' AS {kind}) AS bad")
        message = failure(lambda: write(df, root, keys="id", partitions=4))
        assert "FFQ_UNSUPPORTED_TYPE" in message
        assert f"column 'bad' of type {kind}" in message
        assert files(root) == []
        as_string = df.selectExpr("id", "CAST(bad AS STRING) AS good")
        write(as_string, root, keys="id", partitions=4)
        assert rows(read(spark, root)) == rows(as_string)


def test_metadata_and_unusual_names_of_columns_are_kept(spark: Any, root: str) -> None:
    """Names have spaces, dots, commas and other scripts; a column has a user's metadata."""
    names = ["a b", "c.d", "日本", "x`y", "p,q", "UPPER"]
    df = spark.range(20).selectExpr(*(f"id + {i} AS `{n.replace('`', '``')}`"
                                      for i, n in enumerate(names)))  # fmt: skip
    df = df.withMetadata("a b", {"comment": "why", "nested": {"n": 1}})
    write(df, root, keys="c.d,日本", partitions=4, sortBy="a b")
    exchange = read(spark, root)
    assert loose_schema(exchange) == loose_schema(df)
    assert rows(exchange) == rows(df)
    assert rows(exchange.where("`c.d` = 5 AND `日本` = 6")) == rows(df.where("`c.d` = 5"))


def test_user_defined_types_come_back_as_their_own_objects(spark: Any, root: str) -> None:
    """The types are one with a Scala class (Spark ML's vectors) and one only in Python."""
    from pyspark.ml.linalg import Vectors
    from pyspark.testing.objects import PythonOnlyPoint

    df = spark.createDataFrame(
        [
            (1, Vectors.dense([1.0, 2.0]), PythonOnlyPoint(1.0, 2.0)),
            (2, Vectors.sparse(4, [1], [2.0]), PythonOnlyPoint(3.0, 4.0)),
            (3, None, None),
        ],
        ["id", "vector", "point"],
    )
    write(df, root, keys="id", partitions=4)
    exchange = read(spark, root)
    assert loose_schema(exchange) == loose_schema(df)
    assert rows(exchange) == rows(df)


def test_a_user_defined_type_that_cannot_be_read_again_is_refused(spark: Any, root: str) -> None:
    """ExamplePoint names a module that has no such class."""
    from pyspark.testing.objects import ExamplePoint

    df = spark.createDataFrame([(1, ExamplePoint(1.0, 2.0))], ["id", "bad"])
    message = failure(lambda: write(df, root, keys="id", partitions=4))
    assert "FFQ_UNSUPPORTED_TYPE" in message
    assert "bad" in message
    assert files(root) == []


MONTHS = "INTERVAL '1-2' YEAR TO MONTH"
NO_ARROW_FORM = {
    "interval year to month": MONTHS,
    "array<interval year to month>": f"ARRAY({MONTHS})",
    "map<int,interval year to month>": f"MAP(1, {MONTHS})",
    "struct<a:struct<b:interval year to month>>": (
        f"NAMED_STRUCT('a', NAMED_STRUCT('b', {MONTHS}))"
    ),
}


@pytest.mark.parametrize("kind", NO_ARROW_FORM)
def test_types_without_an_arrow_form_are_refused_by_name(spark: Any, root: str, kind: str) -> None:
    """The error names the column and its type, and no file is written."""
    df = spark.sql(f"SELECT 1 AS id, {NO_ARROW_FORM[kind]} AS bad")
    message = failure(lambda: write(df, root, keys="id", partitions=4))
    assert "FFQ_UNSUPPORTED_TYPE" in message
    assert f"column 'bad' of type {kind}" in message
    assert files(root) == []


def test_calendar_intervals_are_refused(spark: Any, root: str) -> None:
    """Spark refuses this type for every source; our own check would name the column."""
    from pyspark.sql.types import CalendarIntervalType, StructType

    from ffq_spark.errors import UnsupportedType
    from ffq_spark.spark.types import exchange_schema

    df = spark.sql("SELECT 1 AS id, MAKE_INTERVAL(1, 2, 3) AS bad")
    assert '"INTERVAL" type' in failure(lambda: write(df, root, keys="id", partitions=4))
    assert files(root) == []
    with pytest.raises(UnsupportedType, match="column 'bad' of type interval"):
        exchange_schema(StructType().add("bad", CalendarIntervalType()), [])


def test_a_column_type_that_spark_lacks_is_refused_with_the_remedy() -> None:
    import pyarrow as pa

    from ffq_spark.errors import UnsupportedType
    from ffq_spark.format.records import ExchangeRecord
    from ffq_spark.spark.types import spark_schema

    exchange = ExchangeRecord.of(pa.schema([("c", pa.uint8())]), ["c"], 8)
    with pytest.raises(UnsupportedType, match=r"uint8 .* read it with ffq_spark.Exchange"):
        spark_schema(exchange)


@pytest.mark.parametrize("source_partitions", [0, 1, 2])
def test_an_empty_frame_is_a_step_with_columns_and_no_parts(
    spark: Any, root: str, source_partitions: int
) -> None:
    """The step exists even if Spark runs no task; later appends must have the same columns."""
    schema = "id BIGINT, s STRING, a ARRAY<INT>"
    empty = spark.sparkContext.emptyRDD()
    if source_partitions:
        empty = spark.sparkContext.parallelize([], source_partitions)
    df = spark.createDataFrame(empty, schema)
    assert df.rdd.getNumPartitions() == source_partitions
    write(df, root, keys="id", partitions=4)
    (step,) = Exchange(root).steps()
    assert (step.body.rows, step.body.parts) == (0, 0)
    exchange = read(spark, root)
    assert exchange.schema.simpleString() == "struct<id:bigint,s:string,a:array<int>>"
    assert exchange.collect() == []
    more = spark.range(5).selectExpr("id", "'' AS s", "ARRAY(1) AS a")
    write(more, root)
    assert rows(read(spark, root)) == rows(more)
