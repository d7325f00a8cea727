"""Helpers for the Spark tests: write, read, and compare rows cell by cell."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = "ffqshuffle"

_STRICT = re.compile(r'"(nullable|containsNull|valueContainsNull)":false')


def write(df: Any, root: str, mode: str = "append", **options: Any) -> None:
    df.write.format(SOURCE).mode(mode).options(**options).save(root)


def read(spark: Any, root: str, **options: Any) -> Any:
    return spark.read.format(SOURCE).options(**options).load(root)


def rows(df: Any) -> list[str]:
    """Return all rows as sorted texts: equal lists mean equal multisets of rows.

    In these texts NaN equals NaN, and -0.0 differs from 0.0.
    """
    return sorted(repr(tuple(row)) for row in exact(df).collect())


def exact(df: Any) -> Any:
    """Convert dates and times to numbers and text: Python's own types end at the year 9999."""
    return df.select(*(_exact(field.name, field.dataType) for field in df.schema.fields))


def _exact(name: str, kind: Any) -> Any:
    from pyspark.sql import functions as f

    column = f.col(f"`{name.replace('`', '``')}`")
    if kind.typeName() == "timestamp":
        return f.unix_micros(column).alias(name)
    if kind.typeName() == "date":
        return f.unix_date(column).alias(name)
    return column.cast("string").alias(name) if kind.typeName() == "timestamp_ntz" else column


def loose_schema(df: Any) -> str:
    """Return the schema as JSON with every field nullable; types and metadata stay."""
    return _STRICT.sub(r'"\1":true', df.schema.json())


def failure(call: Callable[[], Any]) -> str:
    """Return the text of the error that a call must raise."""
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


def files(root: str, under: str = "") -> list[str]:
    """List every file below a local root, relative to the root."""
    paths = []
    for directory, _, names in os.walk(Path(root, under)):
        paths += [os.path.relpath(os.path.join(directory, name), root) for name in names]
    return sorted(paths)


def decided(root: str) -> list[str]:
    """List the files except leases and attempts, which the bridge writes at any time."""
    beside = ("_ffq/leases/", "_ffq/attempts/")
    return [name for name in files(root) if not name.startswith(beside)]


def part_files(root: str) -> list[str]:
    return [name for name in files(root, "shuffle") if name.endswith(".ipc")]


def bare_source(spark: Any) -> str:
    """Register the source under a name unknown to the plugin, so that plain Spark reads it."""
    from ffq_spark.spark.source import FfqShuffleSource

    class BareSource(FfqShuffleSource):
        @classmethod
        def name(cls) -> str:
            return "ffqbare"

    spark.dataSource.register(BareSource)
    return "ffqbare"
