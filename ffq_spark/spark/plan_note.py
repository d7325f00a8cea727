"""The plugin's request for a plan, and the note with which the plan describes itself.

Spark passes a Python source the requested columns and receives a list of pickled tasks. The request
is metadata of the first column. The note is the first task of the list: a pickle contains bytes
unchanged, so the JVM finds the note between two marks without unpickling it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ffq_spark.shared_names import Metric, PlanField
from ffq_spark.store import ReadTotals

_BEGIN, _END = PlanField.BEGIN.encode(), PlanField.END.encode()
# Spark counts its own up from 0, and special ones down.
_REPORT = -(1 << 20)


@dataclass(frozen=True)
class PlanRequest:
    """The plan that the plugin requests: few large tasks, or one for each of `partitions`."""

    partitions: int = 0
    order: tuple[str, ...] = ()
    """The columns by which the rows of each task must be sorted."""
    bounds: tuple[str, ...] = ()
    """The columns whose minimum and maximum the note must contain."""
    report: bool = False
    """Whether tasks must report their requests to storage."""
    filters: tuple[Mapping[str, Any], ...] = ()
    """Conditions that all needed rows meet, as `conditions.py` decodes them."""


def requested(schema: StructType) -> PlanRequest | None:
    """Decode the plugin's request from the first column's metadata; None without the plugin.

    >>> from pyspark.sql.types import LongType, StructField
    >>> text = '{"partitions": 8, "order": ["k"], "bounds": [], "report": false, "filters": []}'
    >>> requested(StructType([StructField("k", LongType(), True, {"ffq.plan": text})]))
    PlanRequest(partitions=8, order=('k',), bounds=(), report=False, filters=())
    """
    for field in schema.fields:
        if PlanField.REQUEST in field.metadata:
            document = json.loads(field.metadata[PlanField.REQUEST])
            return PlanRequest(
                int(document[PlanField.PARTITIONS]),
                tuple(document[PlanField.ORDER]),
                tuple(document[PlanField.BOUNDS]),
                bool(document[PlanField.REPORT]),
                tuple(document[PlanField.FILTERS]),
            )
    return None


class PlanNote(InputPartition):
    """A plan's note, which takes the place of its first task."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @classmethod
    def of(cls, facts: dict[str, Any]) -> PlanNote:
        """Create a note from facts, encoded as JSON.

        >>> import pickle
        >>> b'{"rows": 3}' in pickle.dumps(PlanNote.of({"rows": 3}))
        True
        """
        return cls(between_marks(json.dumps(facts, allow_nan=False)))

    def __reduce__(self) -> tuple[Any, ...]:
        return PlanNote, (self.text,)


def place_mark(position: int, count: int) -> bytes:
    """Encode a task's position in the plan, which the JVM compares with its partition."""
    return between_marks(f"{position}/{count}")


def between_marks(text: str) -> bytes:
    """Put a text between the marks, which do not occur in JSON in ASCII."""
    return _BEGIN + text.encode("ascii") + _END


def report(totals: ReadTotals) -> None:
    """Report a task's requests to storage to the JVM, at the end of the task.

    The plugin registers an accumulator for its tasks. Spark knows none with this id, so a task that
    the plugin does not run must not report.
    """
    facts = {
        Metric.REQUESTS: totals.requests,
        Metric.BYTES: totals.bytes,
        Metric.PEAK_BYTES: totals.peak_bytes,
        Metric.WAITED_MS: int(totals.waited_seconds * 1000),
    }
    Accumulator(_REPORT, between_marks(json.dumps(facts)), _Latest())


class _Latest(AccumulatorParam[bytes]):
    def zero(self, value: bytes) -> bytes:
        return value

    def addInPlace(self, value1: bytes, value2: bytes) -> bytes:
        return value2
