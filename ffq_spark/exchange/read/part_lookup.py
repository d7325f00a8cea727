"""Find one part of one attempt, as FFQ's FetchShufflePartition requests it."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa
import pyarrow.compute as pc

from ffq_spark.errors import PartitionNotFound
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.resolution import StageAttempts
from ffq_spark.exchange.ledger.claims import claimed_step
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.step_parts import committed_parts
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.format.manifest import with_file_ends
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import StepBody
from ffq_spark.store import Store

# Clients usually fetch all parts of a step, so its manifest is cached.
_REMEMBERED = 2
_manifests: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
_lock = threading.Lock()


def registered_part(store: Store, id: AttemptId, reduce: int) -> Part:
    """Find a part of the attempt that counts; attempt 0 means the latest.

    Its size and checksum come from the manifest, its frames from the index.
    """
    ledger = Ledger(store)
    outcome = ledger.outcome(id.query)
    step = claimed_step(store, outcome)
    with ledger.log.explaining_expiry(outcome):
        attempts = StageAttempts.of(store, id.query, id.stage, step)
        index = attempts.index(id.map_task, str(id.attempt or "latest"))
        listed = stored.parts_of([index])
        committed = listed if step is None else _committed(store, step, index.id)
    in_index, part = _of_partition(listed, reduce), _of_partition(committed, reduce)
    if part is None:
        path = store.url(index.id.directory)
        raise PartitionNotFound(f"partition {reduce} not found in shuffle index", path=path)
    return part._replace(chunks=in_index.chunks if in_index else (), step=None)


def _committed(store: Store, step: StepBody, id: AttemptId) -> pa.Table:
    """List the parts of an attempt in the step's manifest, which never changes."""
    path = store.url(step.manifest)
    known = path, step.manifest_checksum
    with _lock:
        table = _manifests.pop(known, None)
    if table is None:
        data = store.read_optional(step.manifest)
        table = committed_parts(step, data, path, statistics=False)
    with _lock:
        _manifests[known] = table
        while len(_manifests) > _REMEMBERED:
            _manifests.popitem(last=False)
    return with_file_ends(table.filter(pc.equal(table["map_task"], id.map_task)))


def _of_partition(parts: pa.Table, reduce: int) -> Part | None:
    return next(list_parts(parts.filter(pc.equal(parts["reduce"], reduce))), None)
