"""The records of streams: the owner of each epoch, and the query of each batch; created once.

An epoch belongs to one owner. A takeover ends it by a seal: it creates the record of the epoch's
next batch, so that a commit which the previous owner has begun cannot claim that batch any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from ffq_spark.errors import CorruptRecord, StepGap, StreamOwned
from ffq_spark.format import paths
from ffq_spark.format.records import SEAL, BatchRecord, OwnerRecord, StreamBatch
from ffq_spark.store import Store


def owners(store: Store, stream: str) -> list[OwnerRecord]:
    """Read a stream's owners, one for each epoch, the present one last.

    >>> store = Store("memory://doc-owners")
    >>> begin_epoch(store, OwnerRecord("nightly", 1, "a query", first=0, at_ms=0))
    >>> [record.owner for record in owners(store, "nightly")]
    ['a query']
    """
    records: list[OwnerRecord] = []
    for epoch in count(1):
        record = owner(store, stream, epoch)
        if record is None:
            break
        records.append(record)
    return records


def owner(store: Store, stream: str, epoch: int) -> OwnerRecord | None:
    """Read the owner of an epoch, or return None if the stream has no such epoch."""
    path = paths.stream_owner(stream, epoch)
    data = store.read_optional(path)
    return None if data is None else OwnerRecord.decode(data, store.url(path))


def begin_epoch(store: Store, proposal: OwnerRecord) -> None:
    """Seal the epoch before the proposed one, and create the record of its owner; safe to repeat.

    Raises StreamOwned if another owner began the epoch, StepGap if it begins with another batch.
    """
    present = owner(store, proposal.stream, proposal.epoch)
    if present is None:
        if proposal.epoch > 1:
            _seal(store, proposal.stream, proposal.epoch - 1)
        if store.create_once(_owner_path(proposal), proposal.encode()):
            return
        present = owner(store, proposal.stream, proposal.epoch)
    if present is None:
        path = store.url(_owner_path(proposal))
        raise CorruptRecord("the record exists but cannot be read", path=path)
    if present.owner != proposal.owner:
        raise owned(store, present, proposal.owner)
    if present.first != proposal.first:
        message = f"batch {proposal.first} of stream {proposal.stream} came without batch "
        path = store.url(_owner_path(present))
        raise StepGap(f"{message}{present.first}, with which another run began", path=path)


def begins(present: OwnerRecord, proposal: OwnerRecord) -> bool:
    """Return whether an epoch's record is that of the proposed owner and its first batch."""
    return (present.owner, present.first) == (proposal.owner, proposal.first)


def owned(store: Store, present: OwnerRecord, wanted: str) -> StreamOwned:
    """Return the error of a write to a stream that belongs to another owner."""
    message = f"stream {present.stream} belongs to {present.owner}, not to {wanted}"
    return StreamOwned(message, path=store.url(_owner_path(present)), option="streamId")


def _owner_path(record: OwnerRecord) -> str:
    return paths.stream_owner(record.stream, record.epoch)


def _seal(store: Store, stream: str, epoch: int) -> None:
    """End an epoch: create the record of its next batch, unless the epoch has ended already."""
    record = owner(store, stream, epoch)
    if record is None:
        path = store.url(paths.stream_owner(stream, epoch))
        raise CorruptRecord("the owner's record is missing", path=path)
    entries = store.list(paths.stream_epoch(stream, epoch))
    numbers = (paths.parse_number(entry.name.removesuffix(".json")) for entry in entries)
    last = max((number for number in numbers if number is not None), default=record.first)
    for batch in count(last):
        if store.create_once(paths.stream_batch(stream, epoch, batch), SEAL.encode()):
            return
        present = read(store, stream, epoch, batch)
        if present is not None and present.is_seal:
            return


def records_of(
    store: Store, epochs: Sequence[OwnerRecord], owner: str, batch: int
) -> Iterator[tuple[int, BatchRecord]]:
    """Yield the records of an owner's batch, seals included, each with the number of its epoch."""
    for epoch in epochs:
        if epoch.owner == owner:
            record = read(store, epoch.stream, epoch.epoch, batch)
            if record is not None:
                yield epoch.epoch, record


def find(store: Store, epochs: Sequence[OwnerRecord], owner: str, batch: int) -> BatchRecord | None:
    """Read the record of the query that is an owner's batch, or return None without one."""
    records = (record for _, record in records_of(store, epochs, owner, batch))
    return next((record for record in records if not record.is_seal), None)


def read(store: Store, stream: str, epoch: int, batch: int) -> BatchRecord | None:
    """Read the record of a batch in an epoch, or return None."""
    path = paths.stream_batch(stream, epoch, batch)
    data = store.read_optional(path)
    return None if data is None else BatchRecord.decode(data, store.url(path))


def claim(store: Store, query: int, batch: StreamBatch) -> BatchRecord:
    """Record a committed query as a stream's batch; return the record that is there in the end."""
    record = BatchRecord(query, batch.rows, batch.hash_sum, batch.hash_xor)
    path = paths.stream_batch(batch.stream, batch.epoch, batch.batch)
    if store.create_once(path, record.encode()):
        return record
    winner = read(store, batch.stream, batch.epoch, batch.batch)
    if winner is None:
        raise CorruptRecord("the record exists but cannot be read", path=store.url(path))
    return winner
