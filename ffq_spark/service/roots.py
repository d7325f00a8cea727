"""What is served, by name: callers never give or see a path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ffq_spark.errors import BadOption, ExchangeNotFound
from ffq_spark.exchange.catalog import is_exchange
from ffq_spark.store import Store
from ffq_spark.store.confined import leads_outside
from ffq_spark.store.location import split

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def named_roots(roots: Sequence[str]) -> dict[str, str]:
    """Roots by name: `NAME=ROOT`, or the last part of the path.

    >>> named_roots(["/data/orders", "lake=s3://bucket/lake"])
    {'orders': '/data/orders', 'lake': 's3://bucket/lake'}
    """
    found: dict[str, str] = {}
    for given in roots:
        name, equals, root = given.partition("=")
        if not equals or not _NAME.fullmatch(name):
            name, root = given.rstrip("/").rpartition("/")[2], given
        if not _NAME.fullmatch(name):
            # Not repeated: the root may hold a login.
            told = "the last part of a root is not a valid name: give NAME=ROOT"
            raise BadOption(told, option="roots")
        if name in found:
            raise BadOption(f"two roots are called {name!r}: give NAME=ROOT", option="roots")
        found[name] = root
    return found


class Roots:
    """The served roots: each an exchange, or a directory of exchanges.

    >>> from ffq_spark.examples import tiny_exchange
    >>> roots = Roots({"tiny": tiny_exchange().root})
    >>> list(roots.exchanges()), roots.store("tiny").url()
    (['tiny'], 'memory://ffq-tiny')
    """

    def __init__(
        self,
        roots: Mapping[str, str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        hidden: Mapping[str, str] | None = None,
    ) -> None:
        for name in roots:
            if not _NAME.fullmatch(name):
                raise BadOption(f"{name!r} is no name for a root", option="roots")
        self._listed = tuple(roots)
        self._roots = {**roots, **(hidden or {})}
        self._options = dict(storage_options or {})

    def store(self, exchange: str) -> Store:
        """The storage of an exchange, `root` or `root/name`, whether it is there or not."""
        name, _, child = exchange.partition("/")
        root = self._roots.get(name)
        if root is None or (child and not _NAME.fullmatch(child)):
            raise ExchangeNotFound(f"no root is served as {name!r}")
        if child:
            protocol, path = split(root)
            if protocol == "file" and leads_outside(path, child):
                raise ExchangeNotFound(f"there is no exchange {exchange!r}")
            root = f"{root.rstrip('/')}/{child}"
        return Store(root, self._options, confined=True)

    def exchanges(self) -> Iterator[str]:
        """The names of all exchanges there are."""
        for name in self._listed:
            store = self.store(name)
            if is_exchange(store):
                yield name
                continue
            for entry in store.list(""):
                child = f"{name}/{entry.name}"
                if entry.is_dir and _NAME.fullmatch(entry.name):
                    try:
                        there = is_exchange(self.store(child))
                    except ExchangeNotFound:
                        continue
                    if there:
                        yield child

    def hide(self, text: str) -> str:
        """A text that names exchanges where it named paths."""
        for name, root in sorted(self._roots.items(), key=lambda item: -len(item[1])):
            for spelled in {Store(root, self._options).url(), root.rstrip("/")}:
                text = text.replace(spelled, name)
        return text
