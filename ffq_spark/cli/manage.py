"""Verbs about queries, versions and partitions: status, cancel, gc, rollback, rescale, …."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields
from typing import Any

import click

from ffq_spark.cli.context import FINDING, verb
from ffq_spark.cli.output import Output, human_bytes, human_time
from ffq_spark.exchange.attempts.resolution import RULES
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.maintenance.gc import DEFAULT_TTL_SECONDS
from ffq_spark.exchange.maintenance.versions import Version

# Updating a terminal takes longer than deleting a directory.
_SHOWN_EVERY = 100


@click.command()
@verb
@click.argument("query", type=int, required=False)
def status(root: str, storage: dict[str, Any], output: Output, query: int | None) -> None:
    """Show the state of all queries, or of QUERY.

    The states are QUEUED, RUNNING, SUCCEEDED, FAILED and CANCELED.
    """
    rows = []
    for query_status in Exchange(root, storage).status(query):
        times: list[Any] = [query_status.started_at_ms, query_status.ended_at_ms]
        if not output.json:
            times = [human_time(t) if t is not None else None for t in times]
        tasks = (query_status.tasks_done, query_status.tasks_total)
        texts = (query_status.message, query_status.initiator)
        rows.append((query_status.query, query_status.state.name, *times, *tasks, *texts))
    names = ["query", "state", "started", "ended", "tasks_done", "tasks_total", "message"]
    output.table([*names, "initiator"], rows)


@click.command()
@verb
def check(root: str, storage: dict[str, Any], output: Output) -> None:
    """List the queries that are no longer active, and why.

    Such a query has an outcome, or its lease has lapsed.
    """
    output.table(["query", "why"], list(Exchange(root, storage).check().items()))


@click.command()
@verb
@click.argument("query", type=int)
@click.option(
    "--message",
    "-m",
    default="canceled from the command line",
    show_default=True,
    help="Store this reason with the request.",
)
def cancel(root: str, storage: dict[str, Any], output: Output, query: int, message: str) -> None:
    """Request that QUERY be canceled.

    Its Spark application cancels it within seconds.
    """
    record = Exchange(root, storage).cancel(query, message)
    output.record({"query": record.query, "asked_by": record.who, "message": record.message})


@click.command()
@verb
@click.option(
    "--ttl",
    type=float,
    default=DEFAULT_TTL_SECONDS,
    show_default=True,
    help="Keep stale data for this many seconds.",
)
@click.option(
    "--retention",
    type=float,
    help="Expire versions this many seconds after they were replaced; the newest two are kept.  "
    "[default: never]",
)
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default="registered",
    show_default=True,
    help="Choose stale attempts by the records, or as FFQ does in a root without records.",
)
@click.option("--dry-run", is_flag=True, help="Delete nothing; report what would be deleted.")
@click.option(
    "--list", "listed", is_flag=True, help="Print every attempt directory once it is deleted."
)
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
    """Delete data that readers no longer need.

    Exit code 1: some data was kept because a record or an index of it could not be read. With
    --json --list every line is one JSON object; the last one is the report.
    """
    exchange = Exchange(root, storage)
    with output.counter("attempt directories") as progress:
        deleted = itertools.count(1)

        def on_removed(directory: str) -> None:
            if listed:
                output.item({"attempt": directory})
            if (number := next(deleted)) % _SHOWN_EVERY == 0:
                progress(number)

        report = exchange.gc(
            ttl, dry_run=dry_run, rule=rule, retention=retention, on_removed=on_removed
        )
    if output.json:
        (output.item if listed else output.record)(vars(report))
    else:
        action = "would delete" if dry_run else "deleted"
        size = human_bytes(report.bytes)
        output.line(f"{action} {report.files} files, {size}, in {report.attempts} attempts")
        output.line(
            f"fenced {len(report.fenced)} lost queries, expired {len(report.expired)} steps"
        )
        for problem in report.problems:
            output.line(f"kept: {problem}")
        if report.more_problems:
            output.line(f"kept because of {report.more_problems} more problems")
    return FINDING if report.problems else 0


@click.command()
@verb
def versions(root: str, storage: dict[str, Any], output: Output) -> None:
    """List the versions with their sizes and expiry.

    A version comprises the steps from one overwrite to the next.
    """
    listed = [vars(version) for version in Exchange(root, storage).versions()]
    if not output.json:
        for version in listed:
            version["bytes"] = human_bytes(version["bytes"])
            version["committed_at_ms"] = human_time(version["committed_at_ms"])
    output.table([field.name for field in fields(Version)], [list(v.values()) for v in listed])


@click.command()
@verb
@click.argument("step", type=int)
def rollback(root: str, storage: dict[str, Any], output: Output, step: int) -> None:
    """Make the snapshot as of STEP current again, by a new step."""
    record = Exchange(root, storage).rollback(step)
    output.record({"step": record.step, "restores": record.body.restores})


@click.command()
@verb
@click.argument("partitions", type=int)
def rescale(root: str, storage: dict[str, Any], output: Output, partitions: int) -> None:
    """Let new steps have PARTITIONS partitions.

    Nothing is rewritten. Existing steps keep their number, and a read of several steps uses their
    greatest common divisor, which is printed: choose a multiple or a divisor of the present number.
    """
    exchange = Exchange(root, storage)
    # Nothing may fail once the number has changed.
    present = exchange.info().partitions
    record = exchange.rescale(partitions)
    output.record(
        {
            "epoch": record.epoch,
            "write_partitions": record.partitions,
            "partitions": present,
            "partitions_with_new_steps": math.gcd(present, record.partitions),
        }
    )


COMMANDS = (status, check, cancel, gc, versions, rollback, rescale)
