"""The records of streams: the owner of each epoch, and the query of each batch; created once.

An owner that takes a stream back has several epochs. All its batches are recorded in the first of
them, so that a batch of one owner is claimed once, whichever epoch a run of it saw.
"""

from __future__ import annotations

from itertools import count

from ffq_spark.errors import CorruptRecord, StreamOwned
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import BatchRecord, OwnerRecord, StreamBatch
from ffq_spark.store import Store


def owners(store: Store, stream: str) -> list[OwnerRecord]:
    """Read a stream's owners, one for each epoch, the present one last.

    >>> store = Store("memory://doc-batches")
    >>> ensure_owner(store, "nightly", "a query", 0).epoch
    1
    >>> [record.owner for record in owners(store, "nightly")]
    ['a query']
    """
    records: list[OwnerRecord] = []
    for epoch in count(1):
        path = paths.stream_owner(stream, epoch)
        data = store.read_optional(path)
        if data is None:
            break
        records.append(OwnerRecord.decode(data, store.url(path)))
    return records


def ensure_owner(
    store: Store, stream: str, owner: str, batch: int, *, takeover: bool = False
) -> OwnerRecord:
    """Ensure that an owner has the stream, and return the record of its first epoch.

    A new epoch begins, with this batch, if the stream is new or is taken over.
    """
    while True:
        records = owners(store, stream)
        present = records[-1] if records else None
        if present is not None and present.owner == owner:
            return next(record for record in records if record.owner == owner)
        if present is not None and not takeover:
            path = store.url(paths.stream_owner(stream, present.epoch))
            message = f"stream {stream} belongs to {present.owner}, not to {owner}"
            raise StreamOwned(message, path=path, option="streamId")
        record = OwnerRecord(stream, len(records) + 1, owner, batch, now_ms())
        store.create_once(paths.stream_owner(stream, record.epoch), record.encode())


def find(store: Store, stream: str, owner: str, batch: int) -> BatchRecord | None:
    """Read the record of an owner's batch, or return None if the owner has no such batch."""
    for record in owners(store, stream):
        if record.owner == owner:
            return read(store, stream, record.epoch, batch)
    return None


def read(store: Store, stream: str, epoch: int, batch: int) -> BatchRecord | None:
    """Read the record of a batch in an epoch, or return None."""
    path = paths.stream_batch(stream, epoch, batch)
    data = store.read_optional(path)
    return None if data is None else BatchRecord.decode(data, store.url(path))


def claim(store: Store, query: int, batch: StreamBatch) -> bool:
    """Record a committed query as a stream's batch; return False if another query is that batch."""
    record = BatchRecord(query, batch.rows, batch.hash_sum, batch.hash_xor)
    path = paths.stream_batch(batch.stream, batch.epoch, batch.batch)
    if store.create_once(path, record.encode()):
        return True
    winner = read(store, batch.stream, batch.epoch, batch.batch)
    if winner is None:
        raise CorruptRecord("the record exists but cannot be read", path=store.url(path))
    return winner.query == query
