"""Spark's pushed filters as predicates. They only prune: Spark applies every filter again."""

from __future__ import annotations

from collections.abc import Iterable
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

from ffq_spark.exchange.pruning import Predicate

_REPLACEMENT = "\ufffd"
_RANGES: dict[type[Filter], str] = {
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def predicates(filters: Iterable[Filter]) -> list[Predicate]:
    """The filters on top-level columns that can prune.

    >>> predicates([EqualTo(("k",), 3), GreaterThan(("v",), 1.5)])
    [Predicate(column='k', op='in', values=(3,)), Predicate(column='v', op='>', values=(1.5,))]
    """
    found = (_predicate(filter) for filter in filters)
    return [predicate for predicate in found if predicate is not None]


def _predicate(filter: Filter) -> Predicate | None:
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(attribute) != 1 or _is_blurred(getattr(filter, "value", None)):
        return None
    column = attribute[0]
    if isinstance(filter, IsNull):
        return Predicate(column, "in", (None,))
    if isinstance(filter, In):
        # `k IN (1, NULL)` is never true for a null k.
        return Predicate(column, "in", tuple(v for v in filter.value if v is not None))
    if isinstance(filter, EqualNullSafe):
        return Predicate(column, "in", (filter.value,))
    if isinstance(filter, EqualTo) and filter.value is not None:
        return Predicate(column, "in", (filter.value,))
    op = _RANGES.get(type(filter))
    value = getattr(filter, "value", None)
    return None if op is None or value is None else Predicate(column, op, (value,))


def _is_blurred(value: Any) -> bool:
    """Whether a value may stand for other bytes: Java decodes those that are no UTF-8 to this."""
    values = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(one, str) and _REPLACEMENT in one for one in values)
