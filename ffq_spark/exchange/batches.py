"""The records of streams: who owns one, and which query is which batch. Each is created once."""

from __future__ import annotations

from itertools import count

from ffq_spark.errors import CorruptRecord, StreamOwned
from ffq_spark.format import layout
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import BatchRecord, OwnerRecord, StreamBatch
from ffq_spark.store import Store


def owners(store: Store, stream: str) -> list[OwnerRecord]:
    """A stream's owners, one for each epoch, the present one last.

    >>> store = Store("memory://doc-batches")
    >>> own(store, "nightly", "a query", 0).epoch
    1
    >>> [record.owner for record in owners(store, "nightly")]
    ['a query']
    """
    found: list[OwnerRecord] = []
    for epoch in count(1):
        path = layout.stream_owner(stream, epoch)
        data = store.read_optional(path)
        if data is None:
            break
        found.append(OwnerRecord.decode(data, store.url(path)))
    return found


def own(
    store: Store, stream: str, owner: str, batch: int, *, takeover: bool = False
) -> OwnerRecord:
    """The epoch in which an owner writes a batch: the present one, or a new one from here on."""
    while True:
        there = owners(store, stream)
        present = there[-1] if there else None
        if present is not None and present.owner == owner:
            return present
        if present is not None and not takeover:
            path = store.url(layout.stream_owner(stream, present.epoch))
            message = f"stream {stream} belongs to {present.owner}, and this is {owner}"
            raise StreamOwned(message, path=path, option="streamId")
        record = OwnerRecord(stream, len(there) + 1, owner, batch, now_ms())
        store.create_once(layout.stream_owner(stream, record.epoch), record.encode())


def find(store: Store, stream: str, owner: str, batch: int) -> BatchRecord | None:
    """The record of a batch in any of its owner's epochs."""
    for record in reversed(owners(store, stream)):
        found = read(store, stream, record.epoch, batch) if record.owner == owner else None
        if found is not None:
            return found
    return None


def read(store: Store, stream: str, epoch: int, batch: int) -> BatchRecord | None:
    """The record of a batch in one epoch."""
    path = layout.stream_batch(stream, epoch, batch)
    data = store.read_optional(path)
    return None if data is None else BatchRecord.decode(data, store.url(path))


def claim(store: Store, query: int, batch: StreamBatch) -> bool:
    """Make a committed query a stream's batch; whether it is, now or since an earlier call."""
    record = BatchRecord(query, batch.rows, batch.hash_sum, batch.hash_xor)
    path = layout.stream_batch(batch.stream, batch.epoch, batch.batch)
    if store.create_once(path, record.encode()):
        return True
    there = read(store, batch.stream, batch.epoch, batch.batch)
    if there is None:
        raise CorruptRecord("the record exists and cannot be read", path=store.url(path))
    return there.query == query
