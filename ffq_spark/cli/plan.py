"""The verb plan: requests, bytes and dollars of a write and a read before they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ffq_spark.cli.context import ending
from ffq_spark.cli.output import Output, human_bytes
from ffq_spark.exchange.scan.cost_model import LAYOUTS, Estimate, Prices, Requests, Shape, estimate
from ffq_spark.options import ReadOptions, size


def as_size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Bytes, with an optional unit."""
    try:
        return None if value is None else size(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is {error}") from None


def price(
    flag: str, default: float, what: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for one of the prices."""
    return click.option(
        flag, type=click.FloatRange(min=0), default=default, show_default=True, help=what
    )


@click.command()
@click.option("--maps", type=click.IntRange(min=1), required=True, help="Map tasks of the write.")
@click.option("--partitions", type=click.IntRange(min=1), required=True)
@click.option("--bytes", "total", callback=as_size, required=True, help="Of all parts: 500g, 1t.")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Without it both are compared.")
@click.option("--tasks", type=click.IntRange(min=1), help="Read tasks of equal size.")
@click.option(
    "--target-partition-bytes",
    "target",
    callback=as_size,
    help="The read option of that name; 128MiB by default.",
)
@price("--put-price", Prices.put, "Dollars for 1,000 PUT, POST or LIST.")
@price("--get-price", Prices.get, "Dollars for 1,000 GET.")
@price("--storage-price", Prices.storage, "Dollars for a GB a month.")
@ending
def plan(
    output: Output,
    maps: int,
    partitions: int,
    total: int,
    layout: str | None,
    tasks: int | None,
    target: int | None,
    put_price: float,
    get_price: float,
    storage_price: float,
) -> None:
    """Estimate one write and one full read of it on an object store.

    Prices are list prices of S3 Standard in us-east-1 unless you give your own: no discounts, no
    transfer, no other charges.
    """
    if tasks and target:
        raise click.UsageError("give --tasks or --target-partition-bytes, not both")
    prices = Prices(put_price, get_price, storage_price)
    chosen = [layout] if layout else LAYOUTS
    wanted = target or ReadOptions.target_partition_bytes
    shapes = [Shape(maps, partitions, total, name, tasks or 0, wanted) for name in chosen]
    found = [describe(estimate(shape), prices) for shape in shapes]
    if output.json:
        output.record({"prices": vars(prices), "layouts": found})
        return
    names = [name for name in found[0] if name != "layout"]
    rows = [(name.replace("_", " "), *(_cell(name, one[name]) for one in found)) for name in names]
    output.table(["", *(one["layout"] for one in found)], rows)
    if len(found) > 1:
        output.line(_comparison(found))
    output.line(f"At ${put_price} per 1,000 PUT and LIST, ${get_price} per 1,000 GET,")
    output.line(f"${storage_price} per GB and month: list prices, unless you gave others.")


def describe(found: Estimate, prices: Prices) -> dict[str, Any]:
    """All that is known of one layout, by name; names end with their unit."""
    return {
        "layout": found.shape.layout,
        "objects": found.objects,
        "parts": found.shape.parts,
        "part_bytes": found.shape.part_bytes,
        "read_tasks": found.read_tasks,
        "target_partition_bytes": found.shape.task_bytes,
        **_requests("write", found.write, prices),
        **_requests("read", found.read, prices),
        "total_dollars": found.write.dollars(prices) + found.read.dollars(prices),
        "index_bytes": found.index_bytes,
        "manifest_bytes": found.manifest_bytes,
        "stored_bytes": found.stored_bytes,
        "stored_dollars_a_month": found.monthly_dollars(prices),
    }


def _requests(verb: str, found: Requests, prices: Prices) -> dict[str, Any]:
    counts = {f"{verb}_{kind}_requests": count for kind, count in vars(found).items()}
    return {**counts, f"{verb}_dollars": found.dollars(prices)}


def _cell(name: str, value: Any) -> str:
    if "dollars" in name:
        return f"${value:,.4f}" if value < 1 else f"${value:,.2f}"
    return human_bytes(value) if name.endswith("bytes") else f"{value:,}"


def _comparison(found: list[dict[str, Any]]) -> str:
    cheap, dear = sorted(found, key=lambda one: float(one["total_dollars"]))
    saved = [_cell("dollars", one["total_dollars"]) for one in (cheap, dear)]
    if cheap["total_dollars"] == dear["total_dollars"]:
        return f"Both cost the same: {saved[0]} for one write and one read."
    price = f"{saved[0]} instead of {saved[1]} for one write and one read"
    return f"{cheap['layout']} is cheaper: {price}."


COMMANDS = (plan,)
