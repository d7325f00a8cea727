"""Find exchanges below a path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ffq_spark.exchange.exchange import Exchange
from ffq_spark.format import paths
from ffq_spark.store import Store


def find_exchanges(
    root: str, storage_options: Mapping[str, Any] | None = None
) -> Iterator[Exchange]:
    """Find the exchange at a path, or those directly below it.

    >>> from ffq_spark.examples import tiny_exchange
    >>> [exchange.root for exchange in find_exchanges(tiny_exchange("memory://doc-ls/tiny").root)]
    ['memory://doc-ls/tiny']
    """
    store = Store(root, storage_options)
    if is_exchange(store):
        yield Exchange(root, storage_options)
        return
    for entry in store.list(""):
        if entry.is_dir and is_exchange(store, f"{entry.name}/"):
            yield Exchange(f"{root.rstrip('/')}/{entry.name}", storage_options)


def is_exchange(store: Store, prefix: str = "") -> bool:
    """Return whether a directory holds an exchange, with or without records."""
    if store.read_optional(prefix + paths.FORMAT) is not None:
        return True
    return any(paths.parse_number(e.name) is not None for e in store.list(prefix + paths.DATA))
