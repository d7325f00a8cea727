"""Verbs of the service: serve, token."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from ffq_spark.cli.context import FINDING, ending, pairs
from ffq_spark.cli.output import Output
from ffq_spark.cli.signals import stop_requested
from ffq_spark.options import STORAGE_PREFIX, ServeOptions, boolean, storage_options
from ffq_spark.service.auth.access import SCOPES

# Queries need a Spark session, which only a program can give to `ffq.serve`.
_OF_QUERIES = frozenset(
    {"sql", "maxQueries", "maxQueued", "queryTimeout", "resultsRoot", "resultsTtl"}
)


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each option of the service."""
    for field in reversed(list(ServeOptions.declared())):
        declared = field.metadata
        if declared["name"] in _OF_QUERIES:
            continue
        flag = "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", declared["name"]).lower()
        shown = f"  [default: {declared['shown']}]" if declared["shown"] else ""
        given: dict[str, Any] = {"help": declared["doc"] + shown}
        if declared["parse"] is boolean:
            given |= {"is_flag": True, "default": None}
        function = click.option(flag, field.name, **given)(function)
    return function


@click.command()
@click.argument("roots", nargs=-1, required=True)
@click.option("--storage", multiple=True, metavar="NAME=VALUE", help="Of the storage client.")
@_with_options
@ending
def serve(roots: tuple[str, ...], storage: tuple[str, ...], output: Output, **options: Any) -> int:
    """Serve exchanges, or directories of exchanges, over Arrow Flight until told to stop.

    ROOTS are paths or NAME=PATH. Callers see the names alone. SIGTERM and Ctrl-C let calls that are
    under way finish; a second one ends the server at once. Exit code 1: some were cut off.
    """
    from ffq_spark.service.server.memory import return_memory
    from ffq_spark.service.server.service import serve as start

    return_memory()
    found = storage_options({STORAGE_PREFIX + k: v for k, v in pairs("--storage", storage)})
    stopping = stop_requested()
    service = start(list(roots), storage_options=found, **options)
    output.item({"url": service.url, "metrics": service.metrics_url or "no metrics"})
    sys.stdout.flush()
    stopping.wait()
    if service.close():
        return 0
    # A call that waits for storage cannot be ended, and would keep this process.
    sys.stdout.flush()
    os._exit(FINDING)


@click.command()
@click.argument("name")
@click.option("--file", "path", required=True, help="The server's file of tokens; made if needed.")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), required=True)
@click.option("--root", "roots", multiple=True, help="Only these roots.  [default: all]")
@ending
def token(
    output: Output, name: str, path: str, scopes: tuple[str, ...], roots: tuple[str, ...]
) -> None:
    """Make a token for NAME, add its hash to the server's file, and show it: once, now."""
    from ffq_spark.service.auth.token_file import add_token

    output.record({"name": name, "token": add_token(path, name, scopes, roots or None)})


COMMANDS = (serve, token)
