"""What the verbs have in common: the root, the storage, the output, and how errors end."""

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
    """Give a command `--json`, and turn its errors and findings into exit codes."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
    @functools.wraps(function)
    def run(as_json: bool, **arguments: Any) -> None:
        try:
            code = function(output=Output(json=as_json), **arguments)
        except FfqError as error:
            _complain(error, as_json)
            code = _EXIT_CODES[error.error_class]
        sys.exit(code or OK)

    return run


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb ROOT, `--storage` and `--json`, and turn errors into exit codes."""

    @click.argument("root")
    @click.option(
        "--storage",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the storage client, such as endpoint_url=http://127.0.0.1:9000.",
    )
    @ending
    @functools.wraps(function)
    def run(storage: tuple[str, ...], **arguments: Any) -> Any:
        found = storage_options({STORAGE_PREFIX + k: v for k, v in pairs("--storage", storage)})
        return function(storage=found, **arguments)

    return run


def pairs(option: str, given: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The names and values of an option that is given as NAME=VALUE."""
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter("give NAME=VALUE", param_hint=option)
        yield name, value


def _complain(error: FfqError, as_json: bool) -> None:
    if as_json:
        described = {"error": error.code, "class": error.error_class.value, "message": str(error)}
        click.echo(json.dumps(described), err=True)
    else:
        click.echo(f"error: {error}", err=True)
