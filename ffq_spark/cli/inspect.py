"""Verbs that describe exchanges: ls, show, steps, parts, attempts."""

from __future__ import annotations

from typing import Any

import click

from ffq_spark.cli.context import FINDING, verb
from ffq_spark.cli.output import Output, human_bytes, human_time
from ffq_spark.errors import FfqError
from ffq_spark.exchange.catalog import find_exchanges
from ffq_spark.exchange.exchange import Exchange


@click.command()
@verb
def ls(root: str, storage: dict[str, Any], output: Output) -> int:
    """List the exchange at ROOT, or the exchanges directly below it.

    Exit code 1: an exchange cannot be read; its error is in the table.
    """
    rows: list[tuple[Any, ...]] = []
    broken = False
    for exchange in find_exchanges(root, storage):
        try:
            info = exchange.info()
            size = info.bytes if output.json else human_bytes(info.bytes)
            rows.append((exchange.root, info.keys, info.partitions, info.step, info.rows, size, ""))
        except FfqError as error:
            broken = True
            rows.append((exchange.root, None, None, None, None, None, str(error)))
    output.table(["root", "keys", "partitions", "step", "rows", "bytes", "error"], rows)
    return FINDING if broken else 0


@click.command()
@verb
def show(root: str, storage: dict[str, Any], output: Output) -> None:
    """Show the keys, columns and current size of an exchange."""
    info = Exchange(root, storage).info()
    output.record(
        {
            "root": info.root,
            "keys": info.keys,
            "partitions": info.partitions,
            "write_partitions": info.write_partitions,
            "hash": info.hash,
            "step": info.step,
            "version": info.version,
            "visible_steps": info.steps,
            "parts": info.parts,
            "rows": info.rows,
            "bytes": info.bytes if output.json else human_bytes(info.bytes),
            "columns": [f"{field.name} {field.type}" for field in info.schema],
        }
    )


@click.command()
@verb
def steps(root: str, storage: dict[str, Any], output: Output) -> None:
    """List all committed writes, including replaced ones."""
    rows = []
    for record in Exchange(root, storage).steps():
        body = record.body
        when = body.committed_at_ms if output.json else human_time(body.committed_at_ms)
        size = body.bytes if output.json else human_bytes(body.bytes)
        counts = (len(body.attempts), body.partitions or None, body.parts, body.rows, size)
        rows.append((record.step, record.version, body.mode, body.query, *counts, when))
    names = ["step", "version", "mode", "query", "map_tasks", "partitions", "parts", "rows"]
    output.table([*names, "bytes", "committed"], rows)


@click.command()
@verb
@click.option("--steps", help="List only these steps: 17, 10..17, latest or all.")
@click.option("--partitions", help="List only these partitions: 3 or 0-7,12.")
def parts(
    root: str, storage: dict[str, Any], output: Output, steps: str | None, partitions: str | None
) -> None:
    """List the parts that a read of these steps and partitions opens."""
    table = Exchange(root, storage).parts(steps=steps, partitions=partitions)
    names = ["step", "reduce", "modulus", "map_task", "attempt", "rows", "batches", "bytes", "file"]
    columns = [table[name].to_pylist() for name in names]
    output.table(names, list(zip(*columns, strict=True)))


@click.command()
@verb
@click.option("--query", type=int, help="List only the attempts of this query.")
def attempts(root: str, storage: dict[str, Any], output: Output, query: int | None) -> None:
    """List all map attempts with their states.

    The states are those on storage and, if a listener ran, those of Spark's scheduler.
    """
    names = ["query", "stage", "map_task", "attempt", "state", "complete", "rows", "bytes"]
    seen = ["executor", "host", "speculative", "launch_ms", "finish_ms", "reason"]
    rows = []
    for state in Exchange(root, storage).attempts(query):
        own = [getattr(state, name) for name in names]
        task = [getattr(state.task, name, None) for name in ("state", *seen)]
        rows.append((*own, *task))
    output.table([*names, "task", *seen], rows)


COMMANDS = (ls, show, steps, parts, attempts)
