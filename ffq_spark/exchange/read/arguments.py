"""Accept the options of a read as Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ffq_spark.options import ReadOptions


class ReadArguments(TypedDict, total=False):
    """The options of the Spark reader in Python's spelling."""

    columns: Sequence[str] | str | None
    partitions: Iterable[int] | int | str | None
    steps: str | int | None
    as_of_step: int | None
    query: int | None
    stage: int | None
    attempt: int | str | None
    verify: str | None
    credits: int | str | None
    metadata_columns: bool | None
    consolidate: bool | None


def python_options(given: Mapping[str, Any]) -> ReadOptions:
    """Create read options from Python values, with the names and checks of the Spark reader.

    >>> python_options({"partitions": [0, 3], "as_of_step": 2}).partitions
    frozenset({0, 3})
    """
    return ReadOptions.of_python(given)
