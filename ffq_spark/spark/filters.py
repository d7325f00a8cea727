"""Convert the filters that Spark pushes without the plugin (`pruneByFilters`) into predicates.

Predicates only prune: Spark applies every filter again. The values have passed through Java's
types, which may have changed them; see `_may_differ`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timezone
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from ffq_spark.exchange.compute.pruning import Predicate

EXACT_SINCE = datetime(1900, 1, 1, tzinfo=timezone.utc)
_RANGES: dict[type[Filter], str] = {
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def predicates(filters: Iterable[Filter]) -> list[Predicate]:
    """Convert the filters on top-level columns that can prune.

    >>> predicates([EqualTo(("k",), 3), GreaterThan(("v",), 1.5)])
    [Predicate(column='k', op='in', values=(3,)), Predicate(column='v', op='>', values=(1.5,))]
    """
    converted = (_predicate(filter) for filter in filters)
    return [p for p in converted if p is not None and not any(map(_may_differ, p.values))]


def _may_differ(value: Any) -> bool:
    """Return whether Java's types may have changed this value from the one in the query.

    `java.sql.Date` lacks 1582-10-05 to 1582-10-14, `java.sql.Timestamp` applies other offsets
    before 1900, and `String` replaces bytes that are not UTF-8 with U+FFFD.

    >>> [_may_differ(value) for value in (date(1582, 10, 15), date(2026, 1, 1), "\ufffd", "x")]
    [True, False, True, False]
    """
    if isinstance(value, datetime):
        return value.tzinfo is not None and value < EXACT_SINCE
    if isinstance(value, date):
        return value < EXACT_SINCE.date()
    return isinstance(value, str) and "\ufffd" in value


def _predicate(filter: Filter) -> Predicate | None:
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(attribute) != 1:
        return None
    column = attribute[0]
    if isinstance(filter, IsNull):
        return Predicate(column, "in", (None,))
    if isinstance(filter, In):
        # `k IN (1, NULL)` is not true for a null k.
        return Predicate(column, "in", tuple(v for v in filter.value if v is not None))
    if isinstance(filter, EqualNullSafe):
        return Predicate(column, "in", (filter.value,))
    if isinstance(filter, EqualTo) and filter.value is not None:
        return Predicate(column, "in", (filter.value,))
    op = _RANGES.get(type(filter))
    value = getattr(filter, "value", None)
    return None if op is None or value is None else Predicate(column, op, (value,))
