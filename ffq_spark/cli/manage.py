"""Verbs about queries and versions: status, check, cancel, gc, versions, rollback."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import click

from ffq_spark.cli.context import FINDING, verb
from ffq_spark.cli.output import Output, human_bytes, human_time
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.maintenance.gc import DEFAULT_TTL_SECONDS, RULES
from ffq_spark.exchange.maintenance.versions import Version

# A terminal takes longer to show a number than a directory to go.
_SHOWN_EVERY = 100


@click.command()
@verb
@click.argument("query", type=int, required=False)
def status(root: str, storage: dict[str, Any], output: Output, query: int | None) -> None:
    """Show where every query stands, or one: QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED."""
    rows = []
    for found in Exchange(root, storage).status(query):
        times: list[Any] = [found.started_at_ms, found.ended_at_ms]
        if not output.json:
            times = [human_time(t) if t is not None else None for t in times]
        tasks = (found.tasks_done, found.tasks_total)
        rows.append((found.query, found.state.name, *times, *tasks, found.message, found.initiator))
    names = ["query", "state", "started", "ended", "tasks_done", "tasks_total", "message"]
    output.table([*names, "initiator"], rows)


@click.command()
@verb
def check(root: str, storage: dict[str, Any], output: Output) -> None:
    """List the queries that are no longer active: by their outcome, or because a lease is gone."""
    output.table(["query", "why"], list(Exchange(root, storage).check().items()))


@click.command()
@verb
@click.argument("query", type=int)
@click.option("--message", "-m", default="canceled from the command line", show_default=True)
def cancel(root: str, storage: dict[str, Any], output: Output, query: int, message: str) -> None:
    """Ask for a query's end. Its own application ends it, within seconds."""
    record = Exchange(root, storage).cancel(query, message)
    output.record({"query": record.query, "asked_by": record.who, "message": record.message})


@click.command()
@verb
@click.option("--ttl", type=float, default=DEFAULT_TTL_SECONDS, show_default=True, help="Seconds.")
@click.option("--retention", type=float, help="Seconds after which replaced versions expire.")
@click.option("--rule", type=click.Choice(RULES), default="registered", show_default=True)
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@click.option("--list", "listed", is_flag=True, help="Name every attempt directory as it goes.")
def gc(
    root: str,
    storage: dict[str, Any],
    output: Output,
    ttl: float,
    retention: float | None,
    rule: str,
    dry_run: bool,
    listed: bool,
) -> int:
    """Remove what no reader can need. Exit code 1: something could not be read and was left.

    With --json --list every line is an object; the last one is the report.
    """
    exchange = Exchange(root, storage)
    with output.counter("attempt directories") as progress:
        gone = itertools.count(1)

        def on_removed(directory: str) -> None:
            if listed:
                output.item({"attempt": directory})
            if (number := next(gone)) % _SHOWN_EVERY == 0:
                progress(number)

        report = exchange.gc(
            ttl, dry_run=dry_run, rule=rule, retention=retention, on_removed=on_removed
        )
    if output.json:
        (output.item if listed else output.record)(vars(report))
    else:
        verb = "would remove" if dry_run else "removed"
        size = human_bytes(report.bytes)
        output.line(f"{verb} {report.files} files, {size}, in {report.attempts} attempts")
        output.line(
            f"fenced {len(report.fenced)} lost queries, expired {len(report.expired)} steps"
        )
        for problem in report.problems:
            output.line(f"left alone: {problem}")
        if report.more_problems:
            output.line(f"left alone: {report.more_problems} more")
    return FINDING if report.problems else 0


@click.command()
@verb
def versions(root: str, storage: dict[str, Any], output: Output) -> None:
    """List the versions: from one overwrite to the next, what each shows, and if it has expired."""
    found = [vars(version) for version in Exchange(root, storage).versions()]
    if not output.json:
        for version in found:
            version["bytes"] = human_bytes(version["bytes"])
            version["committed_at_ms"] = human_time(version["committed_at_ms"])
    output.table([field.name for field in fields(Version)], [list(v.values()) for v in found])


@click.command()
@verb
@click.argument("step", type=int)
def rollback(root: str, storage: dict[str, Any], output: Output, step: int) -> None:
    """Make the snapshot as of a step the current one again, by a new step."""
    record = Exchange(root, storage).rollback(step)
    output.record({"step": record.step, "restores": record.body.restores})


COMMANDS = (status, check, cancel, gc, versions, rollback)
