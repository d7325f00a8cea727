"""What the text of an option may be, and the value that it means."""

from __future__ import annotations

import re
from collections.abc import Callable

MIB = 1 << 20
MAX_PARTITIONS = 10_000

_SIZE = re.compile(r"([0-9]+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def text(value: str) -> str:
    return value


def names(value: str) -> tuple[str, ...]:
    """Column names, separated by commas."""
    found = tuple(name.strip() for name in value.split(","))
    if not all(found):
        raise ValueError("an empty name between the commas")
    if len(set(found)) != len(found):
        raise ValueError("a name is given twice")
    return found


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return value.lower() == "true"


def number(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        found = int(value)
        if not minimum <= found <= maximum:
            raise ValueError(f"not between {minimum} and {maximum}")
        return found

    return parse


def size(value: str) -> int:
    """Bytes, with an optional unit: `1048576`, `64m`, `256MiB`."""
    match = _SIZE.fullmatch(value.strip())
    if not match or int(match[1]) == 0:
        raise ValueError("not a size such as 1048576, 64m or 256MiB")
    exponent = " kmgt".index(match[2].lower() or " ")
    return int(match[1]) << (10 * exponent)


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"not one of {', '.join(choices)}")
        return value.lower()

    return parse


def partition_set(value: str) -> frozenset[int]:
    """Reduce partitions: `3`, `0-7,12`."""
    found: set[int] = set()
    for item in value.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise ValueError("not a list such as 3 or 0-7,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > MAX_PARTITIONS:
            raise ValueError(f"{item.strip()} is no range of partitions")
        found.update(range(first, last + 1))
    return frozenset(found)


def attempt(value: str) -> str:
    """`registered`, `latest` or a number; FFQ's 0 means latest."""
    choice = value.lower()
    if choice in ("registered", "latest"):
        return choice
    return "latest" if int(choice) == 0 else str(number(1)(choice))


def safe_name(value: str) -> str:
    """A name that is safe as a file's."""
    if not _NAME.fullmatch(value):
        raise ValueError("not made of letters, digits, dots, dashes and underscores")
    return value


def starting_step(value: str) -> str:
    """`earliest`, `latest` or a step's number."""
    return value.lower() if value.lower() in ("earliest", "latest") else str(number(1)(value))
