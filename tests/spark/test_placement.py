"""Spark's own hash partitioning determines the partition of a row, for every type of key."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from spark_rows import failure, files, read, rows, write

from ffq_spark import Exchange
from ffq_spark.format.hashing import partition_ids

pytestmark = pytest.mark.spark

ROWS = 2_100
PARTITIONS = 64
EPOCH = datetime.datetime(1970, 1, 1)

Value = Callable[[random.Random], Any]


def integer(bits: int) -> Value:
    edges = [0, -1, 1, -(1 << bits - 1), (1 << bits - 1) - 1]
    return lambda r: r.choice(edges) if r.random() < 0.1 else r.getrandbits(bits) - (1 << bits - 1)


def real(r: random.Random) -> float:
    if r.random() < 0.2:
        return r.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0])
    return r.gauss(0, 1) * 10.0 ** r.randint(-30, 30)


def decimal(precision: int, scale: int) -> Value:
    def value(r: random.Random) -> Decimal:
        digits = r.randint(0, precision)
        sign = r.choice([0, 1])
        return Decimal((sign, tuple(r.choices(range(10), k=digits)) or (0,), -scale))

    return value


def text(r: random.Random) -> str:
    alphabet = r.choice(["abc", "äöüß", "日本語", "😀🎉e\u0301", "\x00\u200d \n"])
    return "".join(r.choices(alphabet, k=r.randint(0, 13)))


def micros(r: random.Random) -> datetime.timedelta:
    return datetime.timedelta(microseconds=r.randint(-(10**16), 10**16))


def pair(r: random.Random) -> dict[str, Any]:
    return {"a": maybe(integer(32))(r), "b": maybe(text)(r), "c": maybe(real)(r)}


def items(value: Value) -> Value:
    return lambda r: [maybe(value)(r) for _ in range(r.randint(0, 4))]


def maybe(value: Value) -> Value:
    return lambda r: None if r.random() < 0.1 else value(r)


PAIR = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.float64())])

KEY_TYPES: dict[str, tuple[pa.DataType, Value]] = {
    "boolean": (pa.bool_(), lambda r: r.random() < 0.5),
    "byte": (pa.int8(), integer(8)),
    "short": (pa.int16(), integer(16)),
    "int": (pa.int32(), integer(32)),
    "long": (pa.int64(), integer(64)),
    "float": (pa.float32(), real),
    "double": (pa.float64(), real),
    "decimal_10_2": (pa.decimal128(10, 2), decimal(10, 2)),
    "decimal_38_10": (pa.decimal128(38, 10), decimal(38, 10)),
    "string": (pa.string(), text),
    "binary": (pa.binary(), lambda r: r.randbytes(r.randint(0, 13))),
    "date": (pa.date32(), lambda r: (EPOCH + micros(r)).date()),
    "timestamp": (pa.timestamp("us", "UTC"), lambda r: EPOCH + micros(r)),
    "timestamp_ntz": (pa.timestamp("us"), lambda r: EPOCH + micros(r)),
    "day_time_interval": (pa.duration("us"), micros),
    "time": (pa.time64("ns"), lambda r: (EPOCH + micros(r)).time()),
    "struct": (PAIR, pair),
    "array": (pa.list_(pa.string()), items(text)),
    "array_of_structs": (pa.list_(PAIR), items(pair)),
}
SEVERAL = ("int", "string", "double", "boolean")


@pytest.fixture(scope="module")
def keyed(spark: Any) -> Any:
    """Make a row number and one column of each key type; a tenth of all values is null."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            **{
                name: pa.array([maybe(value)(random.Random(f"{name} {i}")) for i in range(ROWS)], t)
                for name, (t, value) in KEY_TYPES.items()
            },
        }
    )
    df = spark.createDataFrame(table).repartition(3).cache()
    assert df.count() == ROWS
    return df


def spark_place(keys: tuple[str, ...], partitions: int) -> str:
    return f"pmod(hash({', '.join(keys)}), {partitions})"


@pytest.mark.parametrize("keys", [*((name,) for name in KEY_TYPES), SEVERAL], ids="+".join)
def test_rows_are_written_to_the_partition_spark_computes(
    spark: Any, keyed: Any, root: str, keys: tuple[str, ...]
) -> None:
    """Every row is read from the partition `pmod(hash(keys), n)`."""
    df = keyed.select("id", *keys)
    write(df, root, keys=",".join(keys), partitions=PARTITIONS)
    assert rows(read(spark, root)) == rows(df)
    with_partitions = read(spark, root, metadataColumns="true")
    places = with_partitions.selectExpr("_ffq_partition", spark_place(keys, PARTITIONS)).collect()
    assert len(places) == ROWS
    assert [place for place in places if place[0] != place[1]] == []
    distinct = len(set(places))
    assert distinct == 3 if keys == ("boolean",) else distinct > PARTITIONS // 2


@pytest.mark.parametrize("partitions", [1, 7, 64, 1000])
def test_partition_ids_equal_sparks_for_any_number_of_partitions(
    keyed: Any, partitions: int
) -> None:
    """On Arrow data from Spark, partition ids equal Spark's for any number of partitions."""
    every = {name: (name,) for name in KEY_TYPES} | {"several": SEVERAL}
    places = [f"{spark_place(keys, partitions)} AS `at {n}`" for n, keys in every.items()]
    table = keyed.selectExpr("*", *places).toArrow().combine_chunks()
    for name, keys in every.items():
        ours = partition_ids([table[key].combine_chunks() for key in keys], partitions)
        wrong = np.flatnonzero(ours != table[f"at {name}"].to_numpy())
        assert not len(wrong), (name, table.select(keys).take(wrong[:3]).to_pylist())


def test_placement_is_that_of_repartition(spark: Any, keyed: Any, root: str) -> None:
    """Partition i of the exchange is partition i of Spark's own shuffle by the same key."""
    df = keyed.select("id", "string")
    write(df, root, keys="string", partitions=PARTITIONS)
    ours = read(spark, root, metadataColumns="true").select("id", "_ffq_partition")
    shuffled = df.repartition(PARTITIONS, "string").selectExpr("id", "spark_partition_id() AS p")
    joined = ours.join(shuffled, "id")
    assert joined.count() == ROWS
    assert joined.where("_ffq_partition != p").count() == 0


REFUSED = {
    "collated string": ("'a' COLLATE UTF8_LCASE", "UTF8_LCASE"),
    "collated string in a struct": ("NAMED_STRUCT('s', 'a' COLLATE UTF8_LCASE)", "UTF8_LCASE"),
    "map": ("MAP(1, 2)", "map<int32, int32>"),
    "map in an array": ("ARRAY(MAP(1, 2))", "map<int32, int32>"),
    "variant": ("PARSE_JSON('1')", "variant"),
    "year-month interval": ("INTERVAL '1-2' YEAR TO MONTH", "interval year to month"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_keys_without_a_hash_are_refused_before_anything_is_written(
    spark: Any, root: str, kind: str
) -> None:
    expression, named = REFUSED[kind]
    df = spark.sql(f"SELECT 1 AS id, {expression} AS bad")
    message = failure(lambda: write(df, root, keys="bad", partitions=4))
    assert "FFQ_UNSUPPORTED_TYPE" in message
    assert "bad" in message
    assert named in message
    assert files(root) == []


def test_calendar_interval_keys_are_refused_by_spark_itself(spark: Any, root: str) -> None:
    """No source of Spark can store this type: Spark raises its own error first."""
    df = spark.sql("SELECT 1 AS id, MAKE_INTERVAL(1, 2, 3) AS bad")
    message = failure(lambda: write(df, root, keys="bad", partitions=4))
    assert '"INTERVAL" type' in message
    assert files(root) == []


@pytest.mark.parametrize("keys", [("long",), ("string",), ("long", "string", "boolean")])
def test_rows_placed_by_ffqs_hash_are_found_by_lookup(
    spark: Any, keyed: Any, root: str, keys: tuple[str, ...]
) -> None:
    """With `hash=ffq`, a look-up opens one partition and finds every row of the key in it."""
    df = keyed.select("id", *keys).limit(300).cache()
    write(df, root, keys=",".join(keys), partitions=PARTITIONS, hash="ffq")
    exchange = Exchange(root)
    assert exchange.info().hash == "ffq"
    written = df.collect()
    for row in written[::6]:
        key = tuple(row[name] for name in keys)
        wanted = sorted(r["id"] for r in written if tuple(r[name] for name in keys) == key)
        table = exchange.lookup(key, metadata_columns=True)
        assert sorted(table["id"].to_pylist()) == wanted
        assert len(set(table["_ffq_partition"].to_pylist())) == 1
