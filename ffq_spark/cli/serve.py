"""The verbs `serve` and `token`."""

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

# Statements need a Spark session, which only a Python program can pass to `ffq.serve`.
_STATEMENT_OPTIONS = frozenset(
    {"sql", "maxQueries", "maxQueued", "queryTimeout", "resultsRoot", "resultsTtl"}
)


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each option of the service."""
    for field in reversed(list(ServeOptions.declared())):
        declared = field.metadata
        if declared["name"] in _STATEMENT_OPTIONS:
            continue
        flag = "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", declared["name"]).lower()
        default = f"  [default: {declared['shown']}]" if declared["shown"] else ""
        attributes: dict[str, Any] = {"help": declared["doc"] + default}
        if declared["parse"] is boolean:
            attributes |= {"is_flag": True, "default": None}
        function = click.option(flag, field.name, **attributes)(function)
    return function


@click.command()
@click.argument("roots", nargs=-1, required=True)
@click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the storage client; may be repeated.",
)
@_with_options
@ending
def serve(roots: tuple[str, ...], storage: tuple[str, ...], output: Output, **options: Any) -> int:
    """Serve exchanges, or directories of exchanges, over Arrow Flight.

    ROOTS are paths or NAME=PATH; callers see only the names. On SIGTERM or Ctrl-C the server
    refuses new calls, finishes those in progress, and ends. A second signal ends it at once. The
    exit code is 1 if calls were cut off.
    """
    from ffq_spark.service.server.memory import return_memory
    from ffq_spark.service.server.service import serve as start

    return_memory()
    given = {STORAGE_PREFIX + name: value for name, value in pairs("--storage", storage)}
    stopping = stop_requested()
    service = start(list(roots), storage_options=storage_options(given), **options)
    output.item({"url": service.url, "metrics": service.metrics_url or "no metrics"})
    sys.stdout.flush()
    stopping.wait()
    if service.close():
        return 0
    # Threads cannot be stopped: a call that waits for storage would keep the process alive.
    sys.stdout.flush()
    os._exit(FINDING)


@click.command()
@click.argument("name")
@click.option(
    "--file",
    "path",
    required=True,
    help="The server's file of tokens. Created if it does not exist.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    required=True,
    help="What the token allows; may be repeated.",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    help="A root to which the token is limited; may be repeated.  [default: all roots]",
)
@ending
def token(
    output: Output, name: str, path: str, scopes: tuple[str, ...], roots: tuple[str, ...]
) -> None:
    """Create a token for NAME, add its hash to the server's file, and print the token.

    The token cannot be printed again: the file contains only its hash.
    """
    from ffq_spark.service.auth.token_file import add_token

    output.record({"name": name, "token": add_token(path, name, scopes, roots or None)})


COMMANDS = (serve, token)
