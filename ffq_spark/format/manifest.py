"""The manifest of a step: one row for each part, as an Arrow table, with optional statistics.

`stats` holds, for each column that has them, `min`, `max` and `nulls` of the part's rows. A bound
that cannot be trusted (no value, NaN) is null and prunes nothing.

Arrow reads a name that begins with a dot as the path of a nested field, so statistics are selected
by their position. Earlier files, which lack a mark, may hold those of another column under such a
name: they are decoded as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import CorruptRecord
from ffq_spark.format.payload import checksum

_LARGE = 1 << 20
_MARK = b"ffq_dotted_names"

PART_FIELDS = [
    pa.field("stage", pa.int64(), nullable=False),
    pa.field("map_task", pa.int64(), nullable=False),
    pa.field("attempt", pa.int64(), nullable=False),
    pa.field("reduce", pa.int32(), nullable=False),
    pa.field("file", pa.string(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("rows", pa.int64(), nullable=False),
    pa.field("batches", pa.int32(), nullable=False),
    pa.field("checksum", pa.uint64()),
    pa.field("tail_bytes", pa.int32(), nullable=False),
    pa.field("tail_checksum", pa.uint64(), nullable=False),
]

ENDS_FILE = pa.field("ends_file", pa.bool_(), nullable=False)
"""True if a part is the last of its file, so no byte may follow it."""


def stats_type(fields: Sequence[pa.Field]) -> pa.DataType:
    """Return the type of the column `stats` for statistics of these columns."""
    return pa.struct(
        [
            (f.name, pa.struct([("min", f.type), ("max", f.type), ("nulls", pa.int64())]))
            for f in fields
        ]
    )


def manifest_schema(stats: Sequence[pa.Field] = ()) -> pa.Schema:
    """Return the schema of a manifest with statistics of these columns."""
    return pa.schema([*PART_FIELDS, *([pa.field("stats", stats_type(stats))] if stats else [])])


def statistics_of(stats: pa.StructArray | pa.ChunkedArray, name: str) -> pa.StructArray:
    """Return the statistics of a column, which must have some.

    >>> stats = pa.array([{"k": {"min": 1}, ".k": {"min": 2}}])
    >>> statistics_of(stats, ".k").to_pylist()
    [{'min': 2}]
    """
    return pc.struct_field(stats, [stats.type.get_field_index(name)])


def mark_statistics(table: pa.Table) -> pa.Table:
    """Mark in a table's metadata that statistics of names with a leading dot can be trusted."""
    if not _dotted_names(table):
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _MARK: b"1"})


def trusted_statistics(table: pa.Table) -> pa.Table:
    """Return a decoded table with unknown statistics where a missing mark makes them doubtful."""
    doubtful = _dotted_names(table)
    if not doubtful or _MARK in (table.schema.metadata or {}):
        return table
    position = table.schema.get_field_index("stats")
    stats = table["stats"].combine_chunks()
    columns = [
        pa.nulls(len(stats), field.type) if field.name in doubtful else column
        for column, field in zip(stats.flatten(), stats.type, strict=True)
    ]
    known = pa.StructArray.from_arrays(columns, fields=list(stats.type))
    return table.set_column(position, table.schema.field(position), known)


def _dotted_names(table: pa.Table) -> list[str]:
    kind = table.schema.field("stats").type if "stats" in table.schema.names else pa.null()
    return [f.name for f in kind if f.name.startswith(".")] if pa.types.is_struct(kind) else []


def join(manifests: Sequence[pa.Table], stats: Sequence[pa.Field]) -> pa.Table:
    """Join the manifests of map attempts into the manifest of a step, ordered for reading."""
    schema = manifest_schema(stats)
    table = pa.concat_tables(manifests) if manifests else schema.empty_table()
    order = [("reduce", "ascending"), ("stage", "ascending"), ("map_task", "ascending")]
    return table.sort_by(order).combine_chunks()


def encode(table: pa.Table) -> bytes:
    """Encode a manifest as an Arrow IPC file.

    >>> decode(encode(manifest_schema().empty_table()), "m").num_rows
    0
    """
    table = mark_statistics(table)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode(data: bytes | pa.Buffer, path: str, *, statistics: bool = True) -> pa.Table:
    """Decode a manifest, optionally without its statistics, and check its columns."""
    # Waking other threads takes longer than decoding a small file.
    options = pa.ipc.IpcReadOptions(use_threads=len(data) > _LARGE)
    buffer = pa.py_buffer(data)
    try:
        reader = pa.ipc.open_file(buffer, options=options)
        # Check first: a manifest of another version may have fewer columns than the selection.
        _check(reader.schema, path)
        if not statistics:
            options.included_fields = list(range(len(PART_FIELDS)))
            reader = pa.ipc.open_file(buffer, options=options)
        return trusted_statistics(reader.read_all())
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, CorruptRecord):
            raise
        raise CorruptRecord(f"not a readable manifest: {error}", path=path) from error


def _check(schema: pa.Schema, path: str) -> None:
    for position, field in enumerate(PART_FIELDS):
        if len(schema) <= position or schema.field(position) != field:
            raise CorruptRecord(f"the manifest has no proper column {field.name}", path=path)


def digest(data: bytes | pa.Buffer) -> int:
    """Compute the checksum of a manifest for its step record."""
    return checksum(pa.py_buffer(data))


def with_file_ends(parts: pa.Table) -> pa.Table:
    """Add the column `ends_file`: which parts are the last of their file.

    >>> parts = pa.table({"file": ["a", "b", "a"], "offset": [0, 0, 8], "bytes": [8, 8, 8]})
    >>> with_file_ends(parts)["ends_file"].to_pylist()
    [False, True, True]
    """
    return parts.append_column(ENDS_FILE, pa.array(_file_ends(parts)))


def _file_ends(parts: pa.Table) -> NDArray[np.bool_]:
    offsets = parts["offset"].to_numpy()
    if not offsets.any():
        return np.ones(len(offsets), np.bool_)
    files = parts["file"].combine_chunks().dictionary_encode()
    codes, ends = files.indices.to_numpy(), offsets + parts["bytes"].to_numpy()
    last = np.zeros(len(files.dictionary), np.int64)
    np.maximum.at(last, codes, ends)
    return np.asarray(ends == last[codes])
