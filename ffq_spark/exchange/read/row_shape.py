"""Convert the batches of parts to the columns and types that a read requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ffq_spark.exchange.read.column_ranges import ColumnSelection
from ffq_spark.exchange.read.part import Part
from ffq_spark.format.conform import conform
from ffq_spark.format.payload import Decoder
from ffq_spark.format.schemas import require_column
from ffq_spark.options import ReadOptions

METADATA_FIELDS = (
    pa.field("_ffq_step", pa.int64()),
    pa.field("_ffq_query", pa.int64()),
    pa.field("_ffq_map_task", pa.int64()),
    pa.field("_ffq_attempt", pa.int64()),
    pa.field("_ffq_partition", pa.int32()),
)
"""The columns that tell where a row lies; an exchange may have columns of its own so named."""

_PART_FIELD = {
    "_ffq_step": "step",
    "_ffq_query": "query",
    "_ffq_map_task": "map_task",
    "_ffq_attempt": "attempt",
    "_ffq_partition": "reduce",
}


def output_schema(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    """Return the columns of a read with these options."""
    names = options.columns or schema.names
    fields = [require_column(schema, name, "columns") for name in names]
    return pa.schema([*fields, *(METADATA_FIELDS if options.metadata_columns else ())])


class RowShape:
    """The columns of an exchange with `schema` that rows with `output` are made of.

    `local` is True if the storage is a local disk, where requests are cheap: see
    `ColumnSelection`.
    """

    def __init__(self, schema: pa.Schema, output: pa.Schema, *, local: bool) -> None:
        self._output = output
        self._own = pa.schema([field for field in output if field.name in schema.names])
        # A read of metadata columns alone still needs one column, to count rows by.
        opened = self._own.names or schema.names[:1]
        self.decoder = Decoder(schema, None if set(opened) == set(schema.names) else opened)
        self.selection = ColumnSelection(schema, opened, local=local)
        """Decides which bytes of a part these columns need."""

    def rows(self, part: Part, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches of a part with the columns and types of the output."""
        if len(self._own) == len(self._output):
            for batch in batches:
                # A batch without columns still has a number of rows.
                yield conform(batch, self._output) if len(self._own) else batch.select([])
            return
        for batch in batches:
            own = conform(batch, self._own) if len(self._own) else batch
            arrays = [
                own.column(field.name)
                if field.name in self._own.names
                else pa.repeat(
                    pa.scalar(getattr(part, _PART_FIELD[field.name]), field.type), batch.num_rows
                )
                for field in self._output
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._output)
