"""Cut several exchanges at one batch of the stream that feeds them.

Each exchange has its own log, and one may be a few batches ahead of another. A cut is the newest
batch that all of them hold, with the step of each that holds it. Batches are the same if they have
the same owner and number: each exchange counts the epochs of a stream for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa

from ffq_spark.errors import BadOption, CorruptRecord, NoCommonVersion
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.store import Store

_FEW = 16


class Held(NamedTuple):
    """A batch that an exchange holds, and the step that holds it."""

    owner: str
    batch: int
    epoch: int
    step: int


@dataclass(frozen=True)
class Cut:
    """A batch of a stream, and for each exchange the step that holds it.

    `epoch` is the epoch of the batch's owner in the first exchange.
    """

    stream: str
    epoch: int
    batch: int
    steps: tuple[tuple[Exchange, int], ...]

    def read(self, **options: Any) -> tuple[pa.RecordBatchReader, ...]:
        """Read each exchange as of the cut, in the order in which the exchanges were given."""
        return tuple(exchange.read(as_of_step=step, **options) for exchange, step in self.steps)


def cut(exchanges: Iterable[Exchange | str], stream: str | None = None) -> Cut:
    """Find the newest batch of a stream that all exchanges hold.

    The stream may be left out if a single one feeds them all.

    >>> import pyarrow as pa
    >>> from ffq_spark.exchange.write.local_write import write_batches
    >>> from ffq_spark.options import WriteOptions
    >>> roots = ["memory://doc-cut-orders", "memory://doc-cut-items"]
    >>> for root, batches in zip(roots, (3, 2)):
    ...     for number in range(batches):
    ...         options = WriteOptions(partitions=1, stream_id="s", batch=number)
    ...         step = write_batches(root, [pa.record_batch({"k": [number]})], options=options)
    >>> newest = cut(roots)
    >>> newest.batch, [reader.read_all().num_rows for reader in newest.read()]
    (1, [2, 2])
    """
    opened = [Exchange(e) if isinstance(e, str) else e for e in exchanges]
    if not opened:
        raise BadOption("a cut needs at least one exchange", option="exchanges")
    stores = [exchange._store for exchange in opened]
    stream = stream or _only_stream(stores)
    common = _newest_common([_held(store, stream) for store in stores])
    if common is None:
        roots = ", ".join(exchange.root for exchange in opened)
        raise NoCommonVersion(f"no batch of stream {stream} is in all of {roots}")
    for store, held in zip(stores, common, strict=True):
        log = StepLog(store)
        if log.expired():
            log.refuse_any_expired(shown.step for shown in log.visible(held.step))
    steps = tuple((e, held.step) for e, held in zip(opened, common, strict=True))
    return Cut(stream, common[0].epoch, common[0].batch, steps)


def _only_stream(stores: list[Store]) -> str:
    streams = [{e.name for e in store.list(paths.STREAMS) if e.is_dir} for store in stores]
    common = sorted(set.intersection(*streams))
    if not common:
        roots = ", ".join(store.url() for store in stores)
        raise NoCommonVersion(f"no stream feeds all of {roots}")
    if len(common) > 1:
        message = f"several streams feed all exchanges, choose one: {', '.join(common)}"
        raise BadOption(message, option="stream")
    return common[0]


def _held(store: Store, stream: str) -> Iterator[Held]:
    """Walk the batches that an exchange holds, newest first, without those rolled back."""
    ledger = Ledger(store)
    ledger.roll_forward()
    number = ledger.log.last_number()
    owners = {record.epoch: record.owner for record in stream_records.owners(store, stream)}
    length = _FEW
    while number:
        first = max(number - length + 1, 1)
        length *= 2
        for step in reversed(ledger.log.read_many(range(first, number + 1))):
            body = step.body
            if body.stream is not None and body.stream.stream == stream:
                epoch = body.stream.epoch
                if epoch not in owners:
                    path = store.url(paths.stream_owner(stream, epoch))
                    raise CorruptRecord("the owner's record is missing", path=path)
                yield Held(owners[epoch], body.stream.batch, epoch, step.step)
            number = body.restores or step.step - 1
            if body.restores:
                break


def _newest_common(exchanges: list[Iterator[Held]]) -> list[Held] | None:
    """Find the newest batch that all exchanges have; return its entry in each, or None.

    Walk all exchanges back at the same pace. They received their batches in the same order, so
    the first batch that was seen in all of them is the newest.
    """
    met: list[dict[tuple[str, int], Held]] = [{} for _ in exchanges]
    for heads in zip_longest(*exchanges):
        keys = [(held.owner, held.batch) for held in heads if held is not None]
        for entries, held in zip(met, heads, strict=True):
            if held is not None:
                entries.setdefault((held.owner, held.batch), held)
        common = [key for key in keys if all(key in entries for entries in met)]
        if common:
            newest = max(common, key=lambda key: met[0][key].step)
            return [entries[newest] for entries in met]
    return None
