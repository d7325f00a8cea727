"""Parts of steps: a step's manifest as a table, and the tables of several steps as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ffq_spark.errors import CorruptRecord
from ffq_spark.format import manifest
from ffq_spark.format.manifest import PART_FIELDS, statistics_of
from ffq_spark.format.records import StepBody, StepRecord

STEP_FIELDS = [
    pa.field("step", pa.int64()),
    pa.field("query", pa.int64()),
    pa.field("modulus", pa.int32()),
]
"""What a step adds to its manifest. A row lies in part `pmod(hash, modulus)`; a modulus of 0 is the
number of partitions in `exchange.json`."""
PARTS_SCHEMA = pa.schema([*STEP_FIELDS, *PART_FIELDS])


def step_parts(
    step: StepRecord, data: bytes | pa.Buffer | None, path: str, *, statistics: bool = True
) -> pa.Table:
    """Decode the parts of a step from its manifest, which must be the committed one."""
    table = committed_parts(step.body, data, path, statistics=statistics)
    values = (step.step, step.body.query, step.body.partitions)
    leading = [
        pa.repeat(pa.scalar(value, field.type), table.num_rows)
        for value, field in zip(values, STEP_FIELDS, strict=True)
    ]
    return pa.table([*leading, *table.columns], schema=pa.schema([*STEP_FIELDS, *table.schema]))


def committed_parts(
    body: StepBody, data: bytes | pa.Buffer | None, path: str, *, statistics: bool = True
) -> pa.Table:
    """Decode a step body's manifest, after checking it against the committed size and checksum."""
    if data is None:
        raise CorruptRecord("the manifest is missing", path=path)
    if len(data) != body.manifest_bytes or manifest.digest(data) != body.manifest_checksum:
        raise CorruptRecord("the manifest differs from the committed one", path=path)
    return manifest.decode(data, path, statistics=statistics)


def with_modulus(parts: pa.Table, founding: int) -> pa.Table:
    """Replace a modulus of 0 by `founding`, the number of partitions in `exchange.json`."""
    moduli = parts["modulus"].to_numpy()
    if np.all(moduli):
        return parts
    moduli = np.where(moduli, moduli, np.int32(founding))
    position = parts.schema.get_field_index("modulus")
    return parts.set_column(position, parts.schema.field(position), pa.array(moduli))


def join_parts(parts: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the parts of several steps, with equal statistics columns."""
    tables = _with_equal_statistics([PARTS_SCHEMA.empty_table(), *parts])
    return pa.concat_tables(tables).combine_chunks()


def _with_equal_statistics(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Give all tables the same statistics columns, null where a table has none.

    Each step chooses its own columns for statistics.
    """
    fields = {
        field.name: field
        for table in tables
        if "stats" in table.schema.names
        for field in table.schema.field("stats").type
    }
    wanted = [fields[name] for name in sorted(fields)]
    for table in tables:
        plain = table.select(PARTS_SCHEMA.names)
        if wanted:
            yield plain.append_column("stats", _statistics(table, wanted))
        else:
            yield plain


def _statistics(table: pa.Table, wanted: Iterable[pa.Field]) -> pa.StructArray:
    stats = table["stats"].combine_chunks() if "stats" in table.schema.names else None
    known = set() if stats is None else {field.name for field in stats.type}
    columns = [
        statistics_of(stats, field.name)
        if field.name in known
        else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted))
