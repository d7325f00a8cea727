"""Sealing a query: the outputs of its map attempts become one manifest and the body of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ffq_spark.errors import BadCommit
from ffq_spark.format import manifest, paths
from ffq_spark.format.digest import Digest
from ffq_spark.format.ids import now_ms
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import QueryRecord, StepBody
from ffq_spark.format.registered import Registered

NO_ROWS = Digest()


@dataclass(frozen=True)
class AttemptOutput:
    """What a finished map attempt reports: its identity and the manifest rows of its parts."""

    id: AttemptId
    manifest: bytes
    digest: Digest = NO_ROWS


def seal(
    query: QueryRecord, outputs: Sequence[AttemptOutput], stats: Sequence[pa.Field]
) -> tuple[StepBody, bytes]:
    """Merge the outputs of a query's map attempts into the body of its step and its manifest.

    >>> body, data = seal(QueryRecord(7, "app-1", 0, "append", now_ms()), [], [])
    >>> body.parts, body.manifest_bytes == len(data)
    (0, True)
    """
    attempts: dict[int, int] = {}
    for output in outputs:
        id = output.id
        if (id.query, id.stage) != (query.query, query.stage):
            actual = f"stage {id.stage} of query {id.query}"
            expected = f"stage {query.stage} of query {query.query}"
            raise BadCommit(f"a task's message is for {actual}, not {expected}")
        if id.map_task in attempts:
            raise BadCommit(f"map task {id.map_task} sent two messages")
        attempts[id.map_task] = id.attempt
    path = paths.manifest(query.query)
    table = manifest.join([manifest.decode(o.manifest, path) for o in outputs], stats)
    data = manifest.encode(table)
    body = StepBody(
        query=query.query,
        mode=query.mode,
        stage=query.stage,
        rows=sum(table["rows"].to_numpy().tolist()),
        bytes=sum(table["bytes"].to_numpy().tolist()),
        parts=table.num_rows,
        registered=Registered.of(attempts),
        manifest=path,
        manifest_bytes=len(data),
        manifest_checksum=manifest.digest(data),
        committed_at_ms=now_ms(),
    )
    return body, data
