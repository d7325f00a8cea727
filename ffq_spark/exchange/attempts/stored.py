"""List the attempts that storage holds, and read their indexes and parts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from ffq_spark.errors import BadOption, CorruptIndex, QueryNotFound
from ffq_spark.format import paths
from ffq_spark.format.index import Chunk, IndexEntry, MapTaskIndex
from ffq_spark.format.manifest import PART_FIELDS, with_file_ends
from ffq_spark.format.paths import AttemptId
from ffq_spark.store import Store

# Bounds the memory for the attempts of a stage, which may have a million map tasks.
_TASKS_AT_ONCE = 1000

CHUNKS_FIELD = pa.field(
    "chunks", pa.list_(pa.struct([(name, pa.int64()) for name in Chunk.__dataclass_fields__]))
)


def numbers(store: Store, path: str) -> Sequence[int]:
    """List the numeric directories below a path in ascending order; ignore other names."""
    return compact(paths.parse_number(e.name) for e in store.scan(path) if e.is_dir)


def compact(candidates: Iterable[int | None]) -> Sequence[int]:
    """Sort numbers of at most 63 bits into an array of eight bytes each; skip None.

    A root may have a million queries.

    >>> list(compact([7, None, 3]))
    [3, 7]
    """
    fits = (number for number in candidates if number is not None and number <= paths.MAX_ID)
    ordered = np.fromiter(fits, np.uint64)
    ordered.sort()
    return array("Q", ordered.tobytes())


def stored_attempts(
    store: Store, query: int, stage: int, map_task: int | None = None
) -> Iterator[AttemptId]:
    """Yield every attempt directory of one stage or map task in ascending order."""
    base = f"{paths.DATA}/{query}/{stage}"
    tasks = numbers(store, base) if map_task is None else [map_task]
    for start in range(0, len(tasks), _TASKS_AT_ONCE):
        page = tasks[start : start + _TASKS_AT_ONCE]
        listed = store.read_each(lambda task: numbers(store, f"{base}/{task}"), page)
        for task, attempts in zip(page, listed, strict=True):
            for attempt in attempts:
                # FFQ's attempt numbers have 32 bits, so it ignores larger ones.
                if attempt <= paths.MAX_ATTEMPT:
                    yield AttemptId(query, stage, task, attempt)


def attempt_directory(path: str) -> str | None:
    """Return the attempt directory that contains a file or directory, or None.

    >>> attempt_directory("shuffle/7/0/3/1/part-0.ipc"), attempt_directory("shuffle/7/notes")
    ('shuffle/7/0/3/1', None)
    """
    names = path.split("/")
    inside = len(names) > paths.ATTEMPT_DEPTH and names[0] == paths.DATA
    return "/".join(names[: paths.ATTEMPT_DEPTH]) if inside else None


def read_index(store: Store, id: AttemptId) -> MapTaskIndex | None:
    """Read an attempt's index, or return None while it has none.

    A damaged `index.bin` is an error even if the attempt also has an `index.json`.
    """
    data = store.read_optional(id.index_bin)
    if data is not None:
        index = MapTaskIndex.from_bin(data, store.url(id.index_bin))
    else:
        data = store.read_optional(id.index_json)
        if data is None:
            return None
        index = MapTaskIndex.from_json(data, store.url(id.index_json))
    if index.id != id:
        path = store.url(id.directory)
        raise CorruptIndex(f"the index belongs to {index.id.directory}", path=path)
    return index


def choose_stage(store: Store, query: int | None, stage: int | None) -> tuple[int, int]:
    """Return the query and stage that were asked for, or the only ones on storage."""
    query = require_one(numbers(store, paths.DATA), query, "query", store.url(paths.DATA))
    stages = numbers(store, f"{paths.DATA}/{query}")
    return query, require_one(stages, stage, "stage", store.url(f"{paths.DATA}/{query}"))


def require_one(existing: Sequence[int], wanted: int | None, name: str, path: str) -> int:
    """Return the number that was asked for, which must exist, or the only existing number."""
    if wanted is not None:
        if wanted not in existing:
            raise QueryNotFound(f"there is no {name} {wanted}", path=path)
        return wanted
    if len(existing) != 1:
        listing = ", ".join(str(number) for number in existing[:10]) or "none"
        raise BadOption(f"give the {name} to read, one of: {listing}", option=name)
    return existing[0]


def parts_of(indexes: Sequence[MapTaskIndex]) -> pa.Table:
    """Convert indexes to a table of parts like a manifest's, with FFQ's own checksums."""
    rows: list[dict[str, Any]] = []
    for index in indexes:
        for entry in index.entries:
            rows.append(
                {
                    "stage": index.id.stage,
                    "map_task": index.id.map_task,
                    "attempt": index.id.attempt,
                    "reduce": entry.reduce,
                    "file": _file_of(index, entry),
                    "offset": entry.offset,
                    "bytes": entry.bytes,
                    "rows": entry.rows,
                    "batches": entry.batches,
                    "checksum": None,
                    "tail_bytes": 0,
                    "tail_checksum": 0,
                    "chunks": [asdict(chunk) for chunk in entry.chunks] or None,
                }
            )
    schema = pa.schema([*PART_FIELDS, CHUNKS_FIELD])
    table = with_file_ends(pa.Table.from_pylist(rows, schema=schema))
    order = [("reduce", "ascending"), ("stage", "ascending"), ("map_task", "ascending")]
    return table.sort_by(order)


def _file_of(index: MapTaskIndex, entry: IndexEntry) -> str:
    """Return the file that holds a part; it must belong to the index's own attempt."""
    directory, _, name = entry.file.rpartition("/")
    if directory != index.id.directory or paths.parse_part(name) is None:
        raise CorruptIndex(f"the index names {entry.file!r}", path=index.id.index_json)
    if entry.packed not in (None, index.id.packed):
        raise CorruptIndex(f"the index names {entry.packed!r}", path=index.id.index_json)
    return entry.packed or entry.file
