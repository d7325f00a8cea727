"""Verbs that read data: lookup, fetch, verify."""

from __future__ import annotations

import sys
from typing import Any

import click

from ffq_spark.cli.context import FINDING, verb
from ffq_spark.cli.output import Output, human_bytes
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.format.texts import readable_rows


@click.command()
@verb
@click.argument("key", nargs=-1, required=True)
@click.option("--columns", help="These columns alone, separated by commas.")
@click.option("--as-of-step", type=int, help="As the exchange was after this step.")
def lookup(
    root: str,
    storage: dict[str, Any],
    output: Output,
    key: tuple[str, ...],
    columns: str | None,
    as_of_step: int | None,
) -> int:
    """Show the rows of one KEY (several values where there are several key columns).

    Only the partition that can hold the key is opened. Exit code 1: there is no such row.
    """
    table = Exchange(root, storage).lookup(key, columns=columns, as_of_step=as_of_step)
    output.table(table.schema.names, [tuple(row.values()) for row in readable_rows(table)])
    return 0 if table.num_rows else FINDING


@click.command()
@verb
@click.option("--query", type=int, required=True)
@click.option("--stage", type=int, default=0, show_default=True)
@click.option("--map-task", type=int, required=True)
@click.option("--attempt", type=int, default=0, show_default=True, help="0 is the latest.")
@click.option("--reduce", type=int, required=True)
@click.option("--start-offset", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--max-bytes", type=click.IntRange(min=0), default=0, help="0: to the end.")
@click.option("--output", "-o", "target", type=click.File("wb"), default="-", help="A file.")
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
    """Write the raw bytes of one part, as FFQ's FetchShufflePartition gives them."""
    if target.name == "<stdout>" and sys.stdout.isatty():
        raise click.UsageError("the bytes of a part are not for a terminal: give --output FILE")
    target.write(Exchange(root, storage).fetch(query, map_task, reduce, **place))
    return 0


@click.command()
@verb
@click.option("--steps", help="These steps alone: 17, 10..17, latest, all.")
def verify(root: str, storage: dict[str, Any], output: Output, steps: str | None) -> int:
    """Read everything in full and list all damage. Exit code 1: there is some."""
    with output.progress("verifying") as progress:
        report = Exchange(root, storage).verify(steps=steps, progress=progress)
    findings = [(f.code, f.path, f.message) for f in report.findings]
    if output.json:
        names = ("code", "path", "message")
        counts = {name: getattr(report, name) for name in ("steps", "parts", "rows", "bytes")}
        listed = [dict(zip(names, finding, strict=True)) for finding in findings]
        output.record({"ok": report.ok, **counts, "findings": listed})
    else:
        if findings:
            output.table(["code", "file", "finding"], findings)
        size = human_bytes(report.bytes)
        seen = f"{report.parts} parts, {report.rows} rows, {size} in {report.steps} steps"
        output.line(f"{seen}: {f'{len(findings)} findings' if findings else 'all as committed'}")
    return 0 if report.ok else FINDING


COMMANDS = (lookup, fetch, verify)
