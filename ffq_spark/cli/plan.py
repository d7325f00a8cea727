"""The verb plan: the tasks of a read, or an estimate of what a write and a read cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from ffq_spark.cli.context import pairs, storage_ending
from ffq_spark.cli.output import Output, human_bytes
from ffq_spark.cli.read_plan import show_read_plan
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.scan.cost_model import LAYOUTS, Estimate, Prices, Requests, Shape, estimate
from ffq_spark.options import STORAGE_PREFIX, ReadOptions, size


def as_size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of bytes with an optional unit."""
    try:
        return None if value is None else size(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is {error}") from None


def price(
    flag: str, default: float, help: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an option for one of the prices."""
    return click.option(
        flag, type=click.FloatRange(min=0), default=default, show_default=True, help=help
    )


@click.command()
@click.argument("root", required=False)
@click.argument("options", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--maps", type=click.IntRange(min=1), help="The number of map tasks of the write.")
@click.option("--partitions", type=click.IntRange(min=1), help="The number of partitions.")
@click.option(
    "--bytes",
    "total",
    callback=as_size,
    help="The size of all parts together, such as 500g or 1t.",
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    help="Estimate only this layout.  [default: compare both]",
)
@click.option(
    "--tasks", type=click.IntRange(min=1), help="The number of read tasks, all of equal size."
)
@click.option(
    "--target-partition-bytes",
    "target",
    callback=as_size,
    help="The read option targetPartitionBytes.  [default: 128MiB]",
)
@price("--put-price", Prices.put, "Dollars per 1,000 PUT, POST or LIST requests.")
@price("--get-price", Prices.get, "Dollars per 1,000 GET requests.")
@price("--storage-price", Prices.storage, "Dollars per GB and month.")
@storage_ending
def plan(
    output: Output,
    root: str | None,
    options: tuple[str, ...],
    storage: dict[str, Any],
    maps: int | None,
    partitions: int | None,
    total: int | None,
    layout: str | None,
    tasks: int | None,
    target: int | None,
    put_price: float,
    get_price: float,
    storage_price: float,
) -> None:
    """Show the tasks of a read, or estimate the cost of one write and one full read.

    With ROOT, show the tasks that a read of it would have. Give options of the read as NAME=VALUE,
    such as split=hash or asOfStep=3. No data is opened.

    Without ROOT, estimate the cost on an object store from --maps, --partitions and --bytes. The
    default prices are list prices of S3 Standard in us-east-1, without discounts, transfer or other
    charges.
    """
    if root is not None:
        _refuse_estimate_options()
        show_read_plan(output, Exchange(root, storage).plan(**_read_options(options)))
        return
    if maps is None or partitions is None or total is None:
        raise click.UsageError("give ROOT, or --maps, --partitions and --bytes")
    if tasks and target:
        raise click.UsageError("give --tasks or --target-partition-bytes, not both")
    prices = Prices(put_price, get_price, storage_price)
    chosen = [layout] if layout else LAYOUTS
    wanted = target or ReadOptions.target_partition_bytes
    shapes = [Shape(maps, partitions, total, name, tasks or 0, wanted) for name in chosen]
    estimates = [describe(estimate(shape), prices) for shape in shapes]
    if output.json:
        output.record({"prices": vars(prices), "layouts": estimates})
        return
    names = [name for name in estimates[0] if name != "layout"]
    rows = [
        (name.replace("_", " "), *(_cell(name, one[name]) for one in estimates)) for name in names
    ]
    output.table(["", *(one["layout"] for one in estimates)], rows)
    if len(estimates) > 1:
        output.line(_comparison(estimates))
    output.line(f"At ${put_price} per 1,000 PUT and LIST, ${get_price} per 1,000 GET,")
    output.line(f"${storage_price} per GB and month: list prices, unless other prices were given.")


def _refuse_estimate_options() -> None:
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in ("root", "options", "storage", "as_json"):
            message = f"{option.opts[0]} belongs to an estimate, without ROOT"
            raise click.UsageError(f"{message}; give options of a read as NAME=VALUE")


def _read_options(given: tuple[str, ...]) -> dict[str, Any]:
    options = dict(pairs("NAME=VALUE", given))
    if any(name.lower().startswith(STORAGE_PREFIX) for name in options):
        raise click.UsageError("give options of the storage client with --storage")
    return options


def describe(costs: Estimate, prices: Prices) -> dict[str, Any]:
    """Return the figures of one layout's estimate by name; names end with their unit."""
    return {
        "layout": costs.shape.layout,
        "objects": costs.objects,
        "parts": costs.shape.parts,
        "part_bytes": costs.shape.part_bytes,
        "read_tasks": costs.read_tasks,
        "target_partition_bytes": costs.shape.task_bytes,
        **_requests("write", costs.write, prices),
        **_requests("read", costs.read, prices),
        "total_dollars": costs.write.dollars(prices) + costs.read.dollars(prices),
        "index_bytes": costs.index_bytes,
        "manifest_bytes": costs.manifest_bytes,
        "stored_bytes": costs.stored_bytes,
        "stored_dollars_a_month": costs.monthly_dollars(prices),
    }


def _requests(verb: str, requests: Requests, prices: Prices) -> dict[str, Any]:
    counts = {f"{verb}_{kind}_requests": count for kind, count in vars(requests).items()}
    return {**counts, f"{verb}_dollars": requests.dollars(prices)}


def _cell(name: str, value: Any) -> str:
    if "dollars" in name:
        return f"${value:,.4f}" if value < 1 else f"${value:,.2f}"
    return human_bytes(value) if name.endswith("bytes") else f"{value:,}"


def _comparison(estimates: list[dict[str, Any]]) -> str:
    cheap, dear = sorted(estimates, key=lambda one: float(one["total_dollars"]))
    saved = [_cell("dollars", one["total_dollars"]) for one in (cheap, dear)]
    if cheap["total_dollars"] == dear["total_dollars"]:
        return f"Both cost the same: {saved[0]} for one write and one read."
    price = f"{saved[0]} instead of {saved[1]} for one write and one read"
    return f"{cheap['layout']} is cheaper: {price}."


COMMANDS = (plan,)
