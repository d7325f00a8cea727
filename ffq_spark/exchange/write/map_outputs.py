"""Map outputs on their way to a commit that is not Spark's: claimed, written, registered.

Spark's driver hears from each task which attempt counts. Elsewhere that word lies on storage: an
attempt is claimed by one upload, and registered when its output is complete and checked. The output
is create-once, so it says the same for ever.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pyarrow as pa

from ffq_spark.errors import BadCommit, BadOption, Fenced, NoAttempts
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.compute.row_partitions import check_placed
from ffq_spark.exchange.compute.sorting import check_sorted
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.read.bounded import Limits, read_large_part
from ffq_spark.exchange.read.decode import validate
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.read.part_file import Checked, check_part
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format import manifest, paths
from ffq_spark.format.digest import Digest
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.store import Store

_DIGEST = b"ffq.digest"
MAX_MAP_TASKS = 1_000_000
# What is held of a file that somebody else wrote, whatever size its batches have.
_LIMITS = Limits(8 << 20)


def claim(store: Store, id: AttemptId) -> AttemptId:
    """Take an attempt for one upload; attempt 0 is the next that nobody has.

    >>> store = Store("memory://doc-claim")
    >>> claim(store, AttemptId(7, 0, 3, 0)).attempt, claim(store, AttemptId(7, 0, 3, 0)).attempt
    (1, 2)
    """
    if id.map_task >= MAX_MAP_TASKS or id.attempt > paths.MAX_ATTEMPT:
        raise BadOption(f"no map task {id.map_task}, attempt {id.attempt}", option="map_task")
    if id.attempt:
        taken = stored.read_index(store, id) is not None or not _claimed(store, id)
        if taken:
            path = store.url(id.directory)
            raise Fenced(f"attempt {id.attempt} of map task {id.map_task} is taken", path=path)
        return id
    last = max(stored.numbers(store, id.directory.rpartition("/")[0]), default=0)
    while not _claimed(store, id := id._replace(attempt=last + 1)):
        last += 1
    return id


def _claimed(store: Store, id: AttemptId) -> bool:
    return store.create_once(id.claim, json.dumps({"claim": secrets.token_hex(8)}).encode())


def register(store: Store, output: AttemptOutput) -> None:
    """Make an attempt's output known to the commit; doing it again changes nothing."""
    if not store.create_once(output.id.output, _encode(output)):
        there = read_output(store, output.id)
        if there is None or _same(there, output):
            return
        path = store.url(output.id.output)
        raise Fenced("the attempt is registered with another output", path=path)


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
    """What a registered attempt reports, or None if it is not registered."""
    data = store.read_optional(id.output)
    if data is None:
        return None
    path = store.url(id.output)
    table = manifest.decode(data, path)
    directories = {file.rpartition("/")[0] for file in table["file"].to_pylist()}
    if directories - {id.directory}:
        raise BadCommit(f"the output of {id.directory} names files elsewhere: {path}")
    words = json.loads((table.schema.metadata or {}).get(_DIGEST, b"[0, 0, 0]"))
    plain = manifest.encode(table.replace_schema_metadata(None))
    return AttemptOutput(id, plain, Digest(*words))


def registered_outputs(store: Store, job: WriteJob, map_tasks: int) -> list[AttemptOutput]:
    """The newest registered attempt of each of so many map tasks: none missing, none beyond."""
    query, stage = job.query.query, job.query.stage
    found: dict[int, AttemptOutput] = {}
    for id in stored.stored_attempts(store, query, stage):
        output = read_output(store, id)
        if output is not None:
            found[id.map_task] = output
    missing = [task for task in range(map_tasks) if task not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadCommit(f"map task {missing[0]}{more} of {map_tasks} has no registered output")
    beyond = [task for task in found if task >= map_tasks]
    if beyond:
        raise BadCommit(f"map task {beyond[0]} has an output, and {map_tasks} are to be committed")
    return [found[task] for task in range(map_tasks)]


def examine(store: Store, job: WriteJob, id: AttemptId) -> AttemptOutput:
    """The output of an attempt that somebody else wrote: read in full, and found right.

    Every row must lie in the partition that its key has, and in the order that the step promises;
    a reader would miss it otherwise.
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
        for batch in _placed(store, job, part, checked):
            digest += Digest.of(batch) if job.digests else Digest()
    return AttemptOutput(id, manifest.encode(_manifest(job, table, checksums)), digest)


def _placed(store: Store, job: WriteJob, part: Part, checked: Checked) -> Iterator[pa.RecordBatch]:
    """The batches of a part, each valid in full: the checksum is ours, and vouches for nothing."""
    exchange, path = job.exchange, store.url(part.file)
    if part.reduce >= exchange.partitions:
        raise BadCommit(f"partition {part.reduce} of {exchange.partitions}: {path}")
    batches = read_large_part(store, part, Decoder(exchange.schema), _LIMITS, checked)
    for batch in check_sorted(batches, job.sort_by, path):
        # Only Spark's own strings are known to be meant as they are.
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
        # Bounds that nobody computed prune nothing.
        columns["stats"] = pa.nulls(parts.num_rows, schema.field("stats").type)
    return pa.table([columns[field.name] for field in schema], schema=schema)
