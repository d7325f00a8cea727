"""A cut: one moment of a stream, seen in all the exchanges that it feeds.

Each exchange has a log of its own, and one may be a few batches ahead of another. A cut is the
newest batch that all of them hold, and the step of each that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ffq_spark.errors import BadOption, NoCommonVersion
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.ledger import Ledger
from ffq_spark.exchange.log import StepLog
from ffq_spark.format import layout
from ffq_spark.store import Store

_FEW = 16

Held = tuple[int, int, int]
"""Epoch and batch, and the step that holds them."""


@dataclass(frozen=True)
class Cut:
    """A batch of a stream, and of each exchange the step that it became."""

    stream: str
    epoch: int
    batch: int
    steps: tuple[tuple[Exchange, int], ...]

    def read(self, **options: Any) -> tuple[pa.RecordBatchReader, ...]:
        """The rows of each exchange as of the cut, in the order in which they were given."""
        return tuple(exchange.read(as_of_step=step, **options) for exchange, step in self.steps)


def cut(exchanges: Iterable[Exchange | str], stream: str | None = None) -> Cut:
    """The newest batch of a stream that all of these exchanges hold.

    The stream may be left out if there is only one that feeds them all.

    >>> import pyarrow as pa
    >>> from ffq_spark.exchange.write import write_batches
    >>> from ffq_spark.options import WriteOptions
    >>> roots = ["memory://doc-cut-orders", "memory://doc-cut-items"]
    >>> for root, batches in zip(roots, (3, 2)):
    ...     for number in range(batches):
    ...         options = WriteOptions(partitions=1, stream_id="s", batch=number)
    ...         step = write_batches(root, [pa.record_batch({"k": [number]})], options=options)
    >>> found = cut(roots)
    >>> found.batch, [reader.read_all().num_rows for reader in found.read()]
    (1, [2, 2])
    """
    opened = [Exchange(e) if isinstance(e, str) else e for e in exchanges]
    if not opened:
        raise BadOption("a cut needs at least one exchange", option="exchanges")
    stores = [exchange._store for exchange in opened]
    stream = stream or _only_stream(stores)
    found = _newest_common([_held(store, stream) for store in stores])
    if found is None:
        roots = ", ".join(exchange.root for exchange in opened)
        raise NoCommonVersion(f"no batch of stream {stream} is in all of {roots}")
    for store, (_, _, step) in zip(stores, found, strict=True):
        log = StepLog(store)
        if log.expired():
            log.refuse_any_expired(shown.step for shown in log.visible(step))
    epoch, batch, _ = found[0]
    steps = tuple((e, step) for e, (_, _, step) in zip(opened, found, strict=True))
    return Cut(stream, epoch, batch, steps)


def _only_stream(stores: list[Store]) -> str:
    streams = [{e.name for e in store.list(layout.STREAMS) if e.is_dir} for store in stores]
    common = sorted(set.intersection(*streams))
    if not common:
        roots = ", ".join(store.url() for store in stores)
        raise NoCommonVersion(f"no stream feeds all of {roots}")
    if len(common) > 1:
        raise BadOption(f"say which stream; there are {', '.join(common)}", option="stream")
    return common[0]


def _held(store: Store, stream: str) -> Iterator[Held]:
    """The batches that an exchange holds, newest first; what was rolled back is passed over."""
    ledger = Ledger(store)
    ledger.roll_forward()
    number = ledger.log.last_number()
    length = _FEW
    while number:
        first = max(number - length + 1, 1)
        length *= 2
        for step in reversed(ledger.log.read_many(range(first, number + 1))):
            body = step.body
            if body.stream is not None and body.stream.stream == stream:
                yield body.stream.epoch, body.stream.batch, step.step
            number = body.restores or step.step - 1
            if body.restores:
                break


def _newest_common(exchanges: list[Iterator[Held]]) -> list[Held] | None:
    """Of each exchange the newest entry that has the same epoch and batch in all of them."""
    heads = [next(held, None) for held in exchanges]
    while True:
        there = [head for head in heads if head is not None]
        if len(there) < len(heads):
            return None
        oldest = min(head[:2] for head in there)
        if all(head[:2] == oldest for head in there):
            return there
        heads = [
            next(held, None) if head[:2] > oldest else head
            for head, held in zip(there, exchanges, strict=True)
        ]
