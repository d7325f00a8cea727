"""Decode parts into record batches, and compare their rows with the committed number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.part import Part
from ffq_spark.format.payload import Decoder
from ffq_spark.format.texts import as_binary


def decode_part(
    decoder: Decoder, part: Part, data: pa.Buffer, path: str, verify: str = "full"
) -> Iterator[pa.RecordBatch]:
    """Decode one part, batch by batch, and compare its rows with what was committed."""
    rows = batches = 0
    source = decoder.batches(data, path)
    while (batch := next(source, None)) is not None:
        if verify != "full" or part.checksum is None:
            # Without a checksum, at least no offset may point outside its buffer.
            validate(batch, path, full=verify == "full")
        rows += batch.num_rows
        batches += 1
        if not batch.num_rows:
            continue
        held = [batch]
        # Drop the reference: only the caller should keep the batch in memory.
        del batch
        yield held.pop()
    if verify != "none":
        check_counts(rows, batches, part, path)


def check_counts(rows: int, batches: int, part: Part, path: str) -> None:
    """Raise CorruptPart if a part has other numbers of rows or batches than were committed."""
    if (rows, batches) != (part.rows, part.batches):
        counted = f"{rows} rows in {batches} batches"
        raise CorruptPart(f"{counted} instead of {part.rows} in {part.batches}", path=path)


def validate(batch: pa.RecordBatch, path: str, *, full: bool, any_bytes: bool = True) -> None:
    """Raise CorruptPart if the buffers of a batch contradict its schema.

    `full` checks every value. `any_bytes` allows strings that are not UTF-8, which Spark may have.
    """
    try:
        batch.validate()
        for column in batch.columns if full else ():
            kind = as_binary(column.type) if any_bytes else column.type
            (column if kind == column.type else column.view(kind)).validate(full=True)
    except pa.ArrowException as error:
        raise CorruptPart(f"not valid Arrow data: {error}", path=path) from error


def validated(
    batches: Iterable[pa.RecordBatch], path: str, *, full: bool
) -> Iterator[pa.RecordBatch]:
    """Yield batches after validating each of them."""
    for batch in batches:
        validate(batch, path, full=full)
        yield batch
