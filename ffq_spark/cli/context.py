"""The arguments, output and exit codes that all verbs share."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from ffq_spark.cli.output import Output
from ffq_spark.errors import ErrorClass, FfqError
from ffq_spark.options import STORAGE_PREFIX, storage_options

OK, FINDING, USAGE, STORAGE = 0, 1, 2, 3

_EXIT_CODES = {
    ErrorClass.CONFIG: USAGE,
    ErrorClass.PLANNING: USAGE,
    ErrorClass.UNSUPPORTED: USAGE,
    ErrorClass.EXECUTION: FINDING,
    ErrorClass.IO: STORAGE,
}


def ending(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` to a command and turn its errors and findings into exit codes."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
    @functools.wraps(function)
    def run(as_json: bool, **arguments: Any) -> None:
        try:
            code = function(output=Output(json=as_json), **arguments)
        except FfqError as error:
            _print_error(error, as_json)
            code = _EXIT_CODES[error.error_class]
        sys.exit(code or OK)

    return run


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ROOT, `--storage` and `--json` to a verb and turn its errors into exit codes."""
    return click.argument("root")(storage_ending(function))


def storage_ending(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--storage` and `--json` to a command and turn its errors into exit codes."""

    @click.option(
        "--storage",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an option of the storage client, such as endpoint_url=http://127.0.0.1:9000.",
    )
    @ending
    @functools.wraps(function)
    def run(storage: tuple[str, ...], **arguments: Any) -> Any:
        named = {STORAGE_PREFIX + name: value for name, value in pairs("--storage", storage)}
        return function(storage=storage_options(named), **arguments)

    return run


def pairs(option: str, values: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Split the values of a repeated option NAME=VALUE into names and values.

    >>> list(pairs("--conf", ("spark.master=local[2]",)))
    [('spark.master', 'local[2]')]
    """
    for pair in values:
        name, equals, value = pair.partition("=")
        if not equals:
            # The text is not repeated: it may be a secret.
            raise click.BadParameter("expected NAME=VALUE", param_hint=option)
        yield name, value


def _print_error(error: FfqError, as_json: bool) -> None:
    if as_json:
        described = {"error": error.code, "class": error.error_class.value, "message": str(error)}
        click.echo(json.dumps(described), err=True)
    else:
        click.echo(f"error: {error}", err=True)
