"""FFQ's own files, written from the description of FFQ's format without any code of ffq_spark.

The rows of a golden directory come from plain pyarrow streams, its indexes from text and `struct`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import zstandard

CODECS = {"none": 0, "lz4": 1, "zstd": 2}
FRAME_HEADER_BYTES = 24


def stream(*batches: pa.RecordBatch) -> bytes:
    """Encode batches as one Arrow IPC stream: schema, batches, end marker."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def frame(body: bytes, codec: str = "none") -> bytes:
    """Wrap a stream in a version 2 frame. zstd bodies contain no content size."""
    if codec == "zstd":
        packed = zstandard.ZstdCompressor(write_content_size=False).compress(body)
    elif codec == "lz4":
        packed = pa.compress(body, codec="lz4", asbytes=True)
    else:
        packed = body
    lengths = struct.pack("<QQ", len(body), len(packed))
    return b"FFQS" + bytes([1, CODECS[codec], 0, 0]) + lengths + packed


def pretty(lines: Sequence[str]) -> bytes:
    return "\n".join(lines).encode()


def index_json(
    attempt: tuple[int, int, int, int], created_at_ms: int, partitions: Sequence[str]
) -> bytes:
    """Return `index.json`: JSON indented by two spaces, without a final newline."""
    query, stage, map_task, number = attempt
    head = [
        "{",
        f'  "query_id": {query},',
        f'  "stage_id": {stage},',
        f'  "map_task": {map_task},',
        f'  "attempt": {number},',
        f'  "created_at_ms": {created_at_ms},',
    ]
    if not partitions:
        return pretty([*head, '  "partitions": []', "}"])
    return pretty([*head, '  "partitions": [', ",\n".join(partitions), "  ]", "}"])


def index_bin(document: bytes) -> bytes:
    return b"FFQI" + struct.pack("<II", 1, len(document)) + document


def entry_v1(reduce: int, file: str, size: int, rows: int, batches: int) -> str:
    return "\n".join(
        [
            "    {",
            f'      "reduce_partition": {reduce},',
            f'      "file": "{file}",',
            f'      "bytes": {size},',
            f'      "rows": {rows},',
            f'      "batches": {batches}',
            "    }",
        ]
    )


def chunk(offset: int, framed: bytes, rows: int, batches: int) -> str:
    uncompressed, compressed = struct.unpack_from("<QQ", framed, 8)
    return "\n".join(
        [
            "        {",
            f'          "offset_bytes": {offset},',
            f'          "frame_bytes": {len(framed)},',
            f'          "compressed_bytes": {compressed},',
            f'          "uncompressed_bytes": {uncompressed},',
            f'          "rows": {rows},',
            f'          "batches": {batches},',
            f'          "checksum32": {zlib.adler32(framed)}',
            "        }",
        ]
    )


def entry_v2(reduce: int, file: str, codec: str, frames: Sequence[tuple[bytes, int, int]]) -> str:
    """Return a partition's version 2 entry; each frame comes with its rows and batches."""
    chunks, offset, sums = [], 0, [0, 0, 0, 0]
    for framed, rows, batches in frames:
        chunks.append(chunk(offset, framed, rows, batches))
        uncompressed, compressed = struct.unpack_from("<QQ", framed, 8)
        sums = [a + b for a, b in zip(sums, (compressed, uncompressed, rows, batches), strict=True)]
        offset += len(framed)
    return "\n".join(
        [
            "    {",
            f'      "reduce_partition": {reduce},',
            f'      "file": "{file}",',
            f'      "bytes": {offset},',
            f'      "compressed_bytes": {sums[0]},',
            f'      "uncompressed_bytes": {sums[1]},',
            f'      "codec": "{codec}",',
            '      "chunks": [',
            ",\n".join(chunks),
            "      ],",
            f'      "rows": {sums[2]},',
            f'      "batches": {sums[3]}',
            "    }",
        ]
    )


def directory(attempt: tuple[int, int, int, int]) -> str:
    return "shuffle/" + "/".join(str(number) for number in attempt)


def write_v1(
    root: Path,
    attempt: tuple[int, int, int, int],
    parts: Mapping[int, Sequence[pa.RecordBatch]],
    *,
    created_at_ms: int = 1_700_000_000_000,
    index: bool = True,
) -> Path:
    """Write an attempt as FFQ version 1 does; `index=False` omits the index, as after a crash."""
    place = root / directory(attempt)
    place.mkdir(parents=True, exist_ok=True)
    entries = []
    for reduce, batches in sorted(parts.items()):
        data = stream(*batches)
        (place / f"part-{reduce}.ipc").write_bytes(data)
        file = f"{directory(attempt)}/part-{reduce}.ipc"
        rows = sum(batch.num_rows for batch in batches)
        entries.append(entry_v1(reduce, file, len(data), rows, len(batches)))
    if index:
        write_index(place, index_json(attempt, created_at_ms, entries))
    return place


def write_v2(
    root: Path,
    attempt: tuple[int, int, int, int],
    parts: Mapping[int, Sequence[pa.RecordBatch]],
    codec: str,
    *,
    created_at_ms: int = 1_700_000_000_000,
) -> Path:
    """Write an attempt as FFQ version 2 does: one frame for each batch."""
    place = root / directory(attempt)
    place.mkdir(parents=True, exist_ok=True)
    entries = []
    for reduce, batches in sorted(parts.items()):
        frames = [(frame(stream(batch), codec), batch.num_rows, 1) for batch in batches]
        (place / f"part-{reduce}.ipc").write_bytes(b"".join(framed for framed, _, _ in frames))
        entries.append(entry_v2(reduce, f"{directory(attempt)}/part-{reduce}.ipc", codec, frames))
    write_index(place, index_json(attempt, created_at_ms, entries))
    return place


def write_index(place: Path, document: bytes) -> None:
    (place / "index.json").write_bytes(document)
    (place / "index.bin").write_bytes(index_bin(document))
