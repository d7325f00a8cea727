"""Verbs that read data: lookup, fetch, verify."""

from __future__ import annotations

import sys
from dataclasses import astuple
from typing import Any

import click

from ffq_spark.cli.context import FINDING, verb
from ffq_spark.cli.output import Output, human_bytes
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.format.texts import readable_rows


@click.command()
@verb
@click.argument("key", nargs=-1, required=True)
@click.option("--columns", help="Show only these columns, separated by commas.")
@click.option("--as-of-step", type=int, help="Read the exchange as it was after this step.")
def lookup(
    root: str,
    storage: dict[str, Any],
    output: Output,
    key: tuple[str, ...],
    columns: str | None,
    as_of_step: int | None,
) -> int:
    """Show the rows of one KEY: one value for each key column.

    Only the partition that can hold the key is opened. Exit code 1: no row has this key.
    """
    table = Exchange(root, storage).lookup(key, columns=columns, as_of_step=as_of_step)
    output.table(table.schema.names, [tuple(row.values()) for row in readable_rows(table)])
    return 0 if table.num_rows else FINDING


@click.command()
@verb
@click.option("--query", type=int, required=True, help="The number of the query.")
@click.option("--stage", type=int, default=0, show_default=True, help="The stage of the query.")
@click.option("--map-task", type=int, required=True, help="The map task that wrote the part.")
@click.option(
    "--attempt",
    type=int,
    default=0,
    show_default=True,
    help="The attempt of the map task; 0 means the latest.",
)
@click.option("--reduce", type=int, required=True, help="The partition of the part.")
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Skip this many bytes of the part.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Write at most this many bytes; 0 means all.",
)
@click.option(
    "--output",
    "-o",
    "target",
    type=click.File("wb"),
    default="-",
    help="Write to this file.  [default: stdout]",
)
def fetch(
    root: str,
    storage: dict[str, Any],
    output: Output,
    target: Any,
    query: int,
    map_task: int,
    reduce: int,
    **place: int,
) -> int:
    """Write the raw bytes of one part.

    They are the bytes that FFQ's FetchShufflePartition returns.
    """
    if target.name == "<stdout>" and sys.stdout.isatty():
        raise click.UsageError(
            "refusing to write the bytes of a part to a terminal: give --output FILE"
        )
    target.write(Exchange(root, storage).fetch(query, map_task, reduce, **place))
    return 0


@click.command()
@verb
@click.option("--steps", help="Verify only these steps: 17, 10..17, latest or all.")
def verify(root: str, storage: dict[str, Any], output: Output, steps: str | None) -> int:
    """Read the current snapshot in full and list all damage.

    Exit code 1: damage was found.
    """
    with output.progress("verifying") as progress:
        report = Exchange(root, storage).verify(steps=steps, progress=progress)
    findings = [astuple(finding) for finding in report.findings]
    if output.json:
        names = ("code", "path", "message")
        counts = {name: getattr(report, name) for name in ("steps", "parts", "rows", "bytes")}
        listed = [dict(zip(names, finding, strict=True)) for finding in findings]
        output.record({"ok": report.ok, **counts, "findings": listed})
    else:
        if findings:
            output.table(["code", "file", "finding"], findings)
        size = human_bytes(report.bytes)
        verified = f"{report.parts} parts, {report.rows} rows, {size} in {report.steps} steps"
        output.line(
            f"{verified}: {f'{len(findings)} findings' if findings else 'all as committed'}"
        )
    return 0 if report.ok else FINDING


COMMANDS = (lookup, fetch, verify)
