"""Map outputs of a shared write: claim an attempt, register its output, choose what to commit.

Spark tasks send their outputs to the driver. In a shared write the outputs are records on storage:
one writer claims an attempt, and its output is registered when it is complete and checked. The
record is created once, so it never changes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pyarrow as pa

from ffq_spark.errors import AttemptExists, BadCommit, BadOption, NoAttempts
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.compute.row_partitions import check_placed
from ffq_spark.exchange.compute.sorting import check_sorted
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.read.bounded import MemoryLimits, read_large_part
from ffq_spark.exchange.read.checked_pieces import Checked, check_part
from ffq_spark.exchange.read.decode import validate
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format import manifest, paths
from ffq_spark.format.digest import Digest
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.store import Store

_DIGEST = b"ffq.digest"
MAX_MAP_TASKS = 1_000_000
# Bounds the memory for reading files of other programs, whatever size their batches have.
_LIMITS = MemoryLimits(8 << 20)


def claim(store: Store, id: AttemptId) -> AttemptId:
    """Claim an attempt for one writer; attempt 0 means the next free number.

    >>> store = Store("memory://doc-claim")
    >>> claim(store, AttemptId(7, 0, 3, 0)).attempt, claim(store, AttemptId(7, 0, 3, 0)).attempt
    (1, 2)
    """
    if id.map_task >= MAX_MAP_TASKS or id.attempt > paths.MAX_ATTEMPT:
        limits = f"map tasks are below {MAX_MAP_TASKS}, attempts at most {paths.MAX_ATTEMPT}"
        message = f"map task {id.map_task}, attempt {id.attempt}: {limits}"
        raise BadOption(message, option="map_task")
    if id.attempt:
        exists = stored.read_index(store, id) is not None or not _claimed(store, id)
        if exists:
            message = f"attempt {id.attempt} of map task {id.map_task} exists already"
            raise AttemptExists(message, path=store.url(id.directory), option="attempt")
        return id
    last = max(stored.numbers(store, id.directory.rpartition("/")[0]), default=0)
    while not _claimed(store, id := id._replace(attempt=last + 1)):
        last += 1
    return id


def _claimed(store: Store, id: AttemptId) -> bool:
    return store.create_once(id.claim, json.dumps({"claim": secrets.token_hex(8)}).encode())


def register(store: Store, output: AttemptOutput) -> None:
    """Register an attempt's output for the commit; registering it again does nothing."""
    if not store.create_once(output.id.output, _encode(output)):
        registered = read_output(store, output.id)
        if registered is None or _same(registered, output):
            return
        id = output.id
        message = f"attempt {id.attempt} of map task {id.map_task} has another registered output"
        raise AttemptExists(message, path=store.url(id.output), option="attempt")


def _same(one: AttemptOutput, other: AttemptOutput) -> bool:
    names = [field.name for field in manifest.PART_FIELDS]
    tables = [manifest.decode(o.manifest, "output").select(names) for o in (one, other)]
    return bool(tables[0].equals(tables[1]))


def _encode(output: AttemptOutput) -> bytes:
    table = manifest.decode(output.manifest, output.id.output)
    digest = output.digest
    words = json.dumps([digest.rows, digest.hash_sum, digest.hash_xor])
    return manifest.encode(table.replace_schema_metadata({_DIGEST: words.encode()}))


def read_output(store: Store, id: AttemptId) -> AttemptOutput | None:
    """Read the output of a registered attempt, or return None if it is not registered."""
    data = store.read_optional(id.output)
    return None if data is None else _decode(store, id, data)


def _decode(store: Store, id: AttemptId, data: bytes) -> AttemptOutput:
    path = store.url(id.output)
    table = manifest.decode(data, path)
    directories = {file.rpartition("/")[0] for file in table["file"].to_pylist()}
    if directories - {id.directory}:
        raise BadCommit(f"the output of {id.directory} names files elsewhere: {path}")
    words = json.loads((table.schema.metadata or {}).get(_DIGEST, b"[0, 0, 0]"))
    plain = manifest.encode(table.replace_schema_metadata(None))
    return AttemptOutput(id, plain, Digest(*words))


def registered_outputs(store: Store, job: WriteJob, map_tasks: int) -> list[AttemptOutput]:
    """Read the newest registered output of each of the map tasks 0 to `map_tasks - 1`.

    Raises BadCommit if one is missing, or if a map task beyond them has an output.
    """
    if map_tasks > MAX_MAP_TASKS:
        message = f"a query has at most {MAX_MAP_TASKS} map tasks, not {map_tasks}"
        raise BadOption(message, option="map_tasks")
    query, stage = job.query.query, job.query.stage
    ids = list(stored.stored_attempts(store, query, stage))
    files = store.read_many([id.output for id in ids])
    # A map task's newest attempt comes last.
    outputs = {
        id.map_task: _decode(store, id, data)
        for id, data in zip(ids, files, strict=True)
        if data is not None
    }
    missing = map_tasks - sum(task < map_tasks for task in outputs)
    if missing > 0:
        first = next(task for task in range(map_tasks) if task not in outputs)
        more = f" and {missing - 1} more" if missing > 1 else ""
        raise BadCommit(
            f"map task {first}{more} of {map_tasks} has no registered output",
            remedy="Upload or register it, then repeat the commit",
        )
    beyond = [task for task in outputs if task >= map_tasks]
    if beyond:
        raise BadCommit(
            f"map task {beyond[0]} has an output, but the commit names {map_tasks} map tasks only",
            remedy="Repeat the commit with the number of all map tasks",
        )
    return [outputs[task] for task in range(map_tasks)]


def examine(store: Store, job: WriteJob, id: AttemptId) -> AttemptOutput:
    """Read an attempt that another program wrote in full, and return its output.

    Every row must be in the partition of its key, and in the order of `sortBy`, because readers
    would miss it otherwise.
    """
    index = stored.read_index(store, id)
    if index is None:
        path = store.url(id.directory)
        raise NoAttempts("no shuffle attempts found for map task", path=path)
    table = stored.parts_of([index])
    checksums, digest = [], Digest()
    for part in list_parts(table):
        checked = check_part(store, part, _LIMITS.piece_bytes(store))
        checksums.append(checked.digest)
        for batch in _checked_batches(store, job, part, checked):
            digest += Digest.of(batch) if job.digests else Digest()
    return AttemptOutput(id, manifest.encode(_manifest(job, table, checksums)), digest)


def _checked_batches(
    store: Store, job: WriteJob, part: Part, checked: Checked
) -> Iterator[pa.RecordBatch]:
    """Yield a part's batches, fully validated.

    We computed the checksum ourselves, so it proves nothing about the producer.
    """
    exchange, path = job.exchange, store.url(part.file)
    if part.reduce >= exchange.partitions:
        limit = f"the exchange has {exchange.partitions}"
        raise BadCommit(f"a part of partition {part.reduce}, but {limit}: {path}")
    batches = read_large_part(store, part, Decoder(exchange.schema), _LIMITS, checked)
    for batch in check_sorted(batches, job.sort_by, path):
        # Strings that are not UTF-8 are accepted from Spark only.
        validate(batch, path, full=True, any_bytes=False)
        if exchange.weight is not None and batch.column(exchange.weight).null_count:
            raise BadCommit(f"a row has no weight: {path}")
        check_placed(exchange, batch, part.reduce, path)
        yield batch


def _manifest(job: WriteJob, parts: pa.Table, checksums: list[int]) -> pa.Table:
    schema = manifest.manifest_schema(job.stats_fields)
    columns = {name: parts[name] for name in parts.schema.names}
    columns["checksum"] = pa.array(checksums, pa.uint64())
    if "stats" in schema.names:
        # Without bounds the parts are never pruned.
        columns["stats"] = pa.nulls(parts.num_rows, schema.field("stats").type)
    return pa.table([columns[field.name] for field in schema], schema=schema)
