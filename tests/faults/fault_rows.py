"""Small exchanges whose rows contain a tag of their write, and the rows that readers see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from conftest import Place
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import ExchangeNotFound
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import paths
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store

PARTITIONS = 3
ROWS = 12
OPTIONS = write_options(keys=("k",), partitions=PARTITIONS)

Rows = Counter[tuple[Any, ...]]


def batch_of(tag: int, rows: int = ROWS) -> pa.RecordBatch:
    """Make the rows of one write, marked with the tag of the write."""
    return pa.record_batch({"k": list(range(rows)), "tag": [tag] * rows})


def rows_of(tags: Sequence[int], rows: int = ROWS) -> Rows:
    """Return the rows that a reader sees after the writes with these tags."""
    return Counter((k, tag) for tag in tags for k in range(rows))


def table_rows(table: pa.Table) -> Rows:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


# Stores and exchanges cache no results, so tests share them: a client of S3 is slow to create.
_stores: dict[str, Store] = {}
_exchanges: dict[str, Exchange] = {}


def store_at(place: Place) -> Store:
    if place.root not in _stores:
        _stores[place.root] = Store(place.root, place.storage_options)
    return _stores[place.root]


def exchange_at(place: Place) -> Exchange:
    if place.root not in _exchanges:
        _exchanges[place.root] = Exchange(place.root, place.storage_options)
    return _exchanges[place.root]


def write(place: Place, tag: int, mode: str = "append", store: Store | None = None) -> StepRecord:
    return write_batches(
        place.root,
        [batch_of(tag)],
        options=OPTIONS,
        mode=mode,
        store=store or store_at(place),
    )


def visible(place: Place) -> Rows | None:
    """Return the rows that a reader sees now, or None before the exchange exists."""
    try:
        return table_rows(exchange_at(place).read().read_all())
    except ExchangeNotFound:
        return None


def committed_queries(store: Store) -> set[int]:
    """Return the queries with the outcome COMMITTED, even if their steps are not published yet."""
    names = (entry.name for entry in store.list(paths.QUERIES))
    queries = (name.removesuffix(".outcome.json") for name in names if ".outcome." in name)
    outcomes = (Ledger(store).outcome(int(query)) for query in queries)
    return {outcome.query for outcome in outcomes if outcome and outcome.step}


def markers(store: Store) -> set[int]:
    """Return the queries with a marker: they may be committed and not yet published."""
    return {int(e.name.removesuffix(".json")) for e in store.list(paths.PENDING)}


@dataclass(frozen=True)
class Write:
    """A committed write: the tag of its rows and the mode of its step."""

    tag: int
    mode: str


def replay(log: Sequence[Write]) -> list[int]:
    """Return the tags that are visible after these steps."""
    tags: list[int] = []
    for step in log:
        tags = [step.tag] if step.mode == "replace" else [*tags, step.tag]
    return tags


def read_log(place: Place) -> list[Write]:
    """Return the write of each step; check that each step is one whole write, without a gap."""
    exchange = exchange_at(place)
    log = []
    for number, step in enumerate(exchange.steps(), start=1):
        assert step.step == number
        rows = table_rows(exchange.read(steps=str(number)).read_all())
        (tag,) = {tag for _, tag in rows}
        assert rows == rows_of([tag]), f"step {number} is not one whole write"
        log.append(Write(tag, step.body.mode))
    return log
