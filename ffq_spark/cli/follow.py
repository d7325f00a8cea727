"""Verbs about streams and holds: consumers, forget, hold, release, pause, resume."""

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
    """List the consumers and holds that keep steps from expiry.

    A consumer is a stream that reads under a name.
    """
    exchange = Exchange(root, storage)
    rows = [("consumer", c.consumer, c.step, _when(output, c.at_ms)) for c in exchange.consumers()]
    rows += [("hold", h.name, h.step, _when(output, h.at_ms)) for h in exchange.holds()]
    output.table(["kind", "name", "step", "since"], rows)


@click.command()
@verb
@click.argument("name")
def forget(root: str, storage: dict[str, Any], output: Output, name: str) -> None:
    """Delete the record of the consumer NAME.

    Retention then no longer keeps the steps that it has not read.
    """
    Exchange(root, storage).forget(name)
    output.record({"forgotten": name})


@click.command()
@verb
@click.argument("step", type=int)
@click.argument("name")
def hold(root: str, storage: dict[str, Any], output: Output, step: int, name: str) -> None:
    """Keep STEP readable until the hold NAME is released.

    The steps that are visible together with it are kept, too.
    """
    record = Exchange(root, storage).hold(step, name)
    output.record({"hold": record.name, "step": record.step})


@click.command()
@verb
@click.argument("name")
def release(root: str, storage: dict[str, Any], output: Output, name: str) -> None:
    """Release the hold NAME, so that its steps may expire."""
    Exchange(root, storage).release(name)
    output.record({"released": name})


@click.command()
@verb
@click.option(
    "--at",
    type=int,
    help="Pause at this step, which may lie in the future.  [default: the newest step]",
)
def pause(root: str, storage: dict[str, Any], output: Output, at: int | None) -> None:
    """Pause all streams that read this exchange at one step."""
    output.record({"paused_at": Exchange(root, storage).pause(at)})


@click.command()
@verb
def resume(root: str, storage: dict[str, Any], output: Output) -> None:
    """Let paused streams continue."""
    Exchange(root, storage).resume()
    output.record({"paused_at": None})


COMMANDS = (consumers, forget, hold, release, pause, resume)
