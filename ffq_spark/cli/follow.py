"""Verbs about streams and what they still need: consumers, forget, hold, release, pause, resume."""

from __future__ import annotations

from typing import Any

import click

from ffq_spark.cli.context import verb
from ffq_spark.cli.output import Output, human_time
from ffq_spark.exchange.exchange import Exchange


def _when(output: Output, at_ms: int) -> int | str:
    return at_ms if output.json else human_time(at_ms)


@click.command()
@verb
def consumers(root: str, storage: dict[str, Any], output: Output) -> None:
    """List the streams that read under a name, and the holds: retention keeps what they need."""
    exchange = Exchange(root, storage)
    rows = [("consumer", c.consumer, c.step, _when(output, c.at_ms)) for c in exchange.consumers()]
    rows += [("hold", h.name, h.step, _when(output, h.at_ms)) for h in exchange.holds()]
    output.table(["kind", "name", "step", "since"], rows)


@click.command()
@verb
@click.argument("name")
def forget(root: str, storage: dict[str, Any], output: Output, name: str) -> None:
    """Let retention pass a consumer that will not come back."""
    Exchange(root, storage).forget(name)
    output.record({"forgotten": name})


@click.command()
@verb
@click.argument("step", type=int)
@click.argument("name")
def hold(root: str, storage: dict[str, Any], output: Output, step: int, name: str) -> None:
    """Keep a step readable under a name, with all that are visible with it."""
    record = Exchange(root, storage).hold(step, name)
    output.record({"hold": record.name, "step": record.step})


@click.command()
@verb
@click.argument("name")
def release(root: str, storage: dict[str, Any], output: Output, name: str) -> None:
    """End a hold."""
    Exchange(root, storage).release(name)
    output.record({"released": name})


@click.command()
@verb
@click.option("--at", type=int, help="A step that may have yet to come.")
def pause(root: str, storage: dict[str, Any], output: Output, at: int | None) -> None:
    """Let all streams that read this exchange come to rest at one step."""
    output.record({"paused_at": Exchange(root, storage).pause(at)})


@click.command()
@verb
def resume(root: str, storage: dict[str, Any], output: Output) -> None:
    """End a pause."""
    Exchange(root, storage).resume()
    output.record({"paused_at": None})


COMMANDS = (consumers, forget, hold, release, pause, resume)
