"""Routing: the number of partitions that new steps have, which `rescale` changes.

Every step records its own number, so a change rewrites nothing and stops nobody. A write keeps the
number that was current when it began.
"""

from __future__ import annotations

from ffq_spark.errors import Conflict, CorruptRecord
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import ExchangeRecord, RoutingRecord
from ffq_spark.store import Store


def routings(store: Store) -> list[RoutingRecord]:
    """Read the records of all routing epochs after the first, oldest first.

    >>> routings(Store("memory://doc-routings"))
    []
    """
    names = (paths.parse_routing(entry.name) for entry in store.list(paths.ROUTING))
    last = max((number for number in names if number is not None), default=0)
    # A listing that is read while epochs begin may lack one before the last.
    return [_read(store, epoch) for epoch in range(1, last + 1)]


def _read(store: Store, epoch: int) -> RoutingRecord:
    path = paths.routing(epoch)
    data = store.read_optional(path)
    if data is None:
        raise CorruptRecord("the record of a routing epoch is missing", path=store.url(path))
    record = RoutingRecord.decode(data, store.url(path))
    if record.epoch != epoch:
        raise CorruptRecord(f"the record is of epoch {record.epoch}", path=store.url(path))
    return record


def partition_counts(store: Store, exchange: ExchangeRecord) -> list[int]:
    """Return the number of partitions of each routing epoch; the last one is the current number.

    >>> import pyarrow as pa
    >>> exchange = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ["k"], 8)
    >>> partition_counts(Store("memory://doc-routings"), exchange)
    [8]
    """
    return [exchange.partitions, *(record.partitions for record in routings(store))]


def begin_epoch(store: Store, exchange: ExchangeRecord, partitions: int) -> RoutingRecord:
    """Begin a routing epoch; raise Conflict if another caller begins one at the same time.

    If the number of partitions is the current one, return the current epoch.
    """
    known = routings(store)
    last = known[-1] if known else RoutingRecord(0, exchange.partitions, 0)
    if last.partitions == partitions:
        return last
    record = RoutingRecord(last.epoch + 1, partitions, now_ms())
    path = paths.routing(record.epoch)
    if not store.create_once(path, record.encode()):
        message = f"another rescale began routing epoch {record.epoch} at the same time"
        raise Conflict(message, path=store.url(path))
    return record
