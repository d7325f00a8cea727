"""Parse the texts of options into values; raise ValueError for a text that is not valid."""

from __future__ import annotations

import re
from collections.abc import Callable

MIB = 1 << 20
MAX_PARTITIONS = 10_000

_SIZE = re.compile(r"([0-9]+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def text(value: str) -> str:
    """Return the text unchanged."""
    return value


def names(value: str) -> tuple[str, ...]:
    """Parse column names, separated by commas."""
    columns = tuple(name.strip() for name in value.split(","))
    if not all(columns):
        raise ValueError("a name between the commas is empty")
    if len(set(columns)) != len(columns):
        raise ValueError("a name is given twice")
    return columns


def boolean(value: str) -> bool:
    """Parse `true` or `false`."""
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def number(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[str], int]:
    """Return a parser for integers from `minimum` to `maximum`."""

    def parse(value: str) -> int:
        try:
            parsed: int | None = int(value)
        except ValueError:
            parsed = None
        if parsed is None or not minimum <= parsed <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return parsed

    return parse


def size(value: str) -> int:
    """Parse a number of bytes with an optional unit: `1048576`, `64m`, `256MiB`."""
    match = _SIZE.fullmatch(value.strip())
    if not match or int(match[1]) == 0:
        raise ValueError("must be a size such as 1048576, 64m or 256MiB")
    exponent = " kmgt".index(match[2].lower() or " ")
    return int(match[1]) << (10 * exponent)


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts these choices, in any case."""

    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.lower()

    return parse


def partition_set(value: str) -> frozenset[int]:
    """Parse a set of reduce partitions: `3`, `0-7,12`."""
    # One bit for each partition: a long list may repeat the same ranges.
    chosen = 0
    for item in value.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise ValueError("must be a list such as 3 or 0-7,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > MAX_PARTITIONS:
            message = f"{item.strip()} must be an ascending range up to {MAX_PARTITIONS}"
            raise ValueError(message)
        chosen |= (1 << (last + 1)) - (1 << first)
    return frozenset(n for n in range(chosen.bit_length()) if chosen >> n & 1)


def attempt(value: str) -> str:
    """Parse `registered`, `latest` or an attempt number; 0 means `latest`, as in FFQ."""
    choice = value.lower()
    if choice in ("registered", "latest"):
        return choice
    try:
        return str(number(0)(choice) or "latest")
    except ValueError:
        raise ValueError("must be registered, latest or a number") from None


def safe_name(value: str) -> str:
    """Parse a name that is also a valid file name."""
    if not _NAME.fullmatch(value):
        raise ValueError(
            "must be at most 200 letters, digits, dots, dashes and underscores, and begin with a "
            "letter, digit or underscore"
        )
    return value


def starting_step(value: str) -> str:
    """Parse `earliest`, `latest` or the number of a step."""
    choice = value.lower()
    if choice in ("earliest", "latest"):
        return choice
    try:
        return str(number(1)(choice))
    except ValueError:
        raise ValueError("must be earliest, latest or the number of a step") from None
