"""An exchange with a part that tests damage and restore, in each layout, payload and codec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
from layouts import write_options

from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

CODECS = [
    *product(["parts"], ["arrow", "ffqs"], ["none", "lz4", "zstd"]),
    ("packed", "arrow", "none"),
    ("packed", "ffqs", "zstd"),
]
FORMATS = ["-".join(codec) for codec in CODECS]


def rows(count: int) -> pa.RecordBatch:
    names = [f"{n * 7919:x}{n}" for n in range(count)]
    return pa.record_batch({"k": [n * 7919 for n in range(count)], "name": names})


class Damaged:
    """A small exchange, and one of its parts, which tests damage and restore."""

    def __init__(
        self,
        root: str,
        layout: str = "parts",
        payload: str = "arrow",
        compression: str = "none",
    ) -> None:
        options = write_options(
            keys=("k",), partitions=3, layout=layout, payload=payload, compression=compression
        )
        self.is_packed = layout == "packed"
        write_batches(root, [rows(90)], options=options)
        self.exchange = Exchange(root)
        self.snapshot = take_snapshot(Store(root), ReadOptions())
        self.part = self.snapshot.parts().slice(1, 1)
        self.file = Path(root) / self.part["file"][0].as_py()
        self.start = self.part["offset"][0].as_py()
        self.whole = self.file.read_bytes()
        self.good = self.whole[self.start : self.start + self.part["bytes"][0].as_py()]
        assert self.is_packed == (len(self.good) < len(self.whole)) == (self.start > 0)

    def read(self, verify: str) -> int:
        """Read the part and return its number of rows."""
        schema = self.snapshot.exchange.schema
        batches = read_parts(self.snapshot.store, self.part, schema, ReadOptions(verify=verify))
        return sum(batch.num_rows for batch in batches)

    def flips(self) -> Iterator[tuple[int, int]]:
        """Flip each bit of the part in turn, while the caller handles the yielded position."""
        descriptor = os.open(self.file, os.O_WRONLY)
        try:
            for position, byte in enumerate(self.good):
                for bit in range(8):
                    os.pwrite(descriptor, bytes([byte ^ 1 << bit]), self.start + position)
                    yield position, bit
                os.pwrite(descriptor, bytes([byte]), self.start + position)
        finally:
            os.close(descriptor)
