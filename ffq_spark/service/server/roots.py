"""Map the names that callers use to the served roots. Callers never send or see a path."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ffq_spark.errors import BadOption, BadRequest, ExchangeNotFound, StoreFailed
from ffq_spark.exchange.catalog import is_exchange
from ffq_spark.format import paths
from ffq_spark.service.server.public_texts import PublicTexts
from ffq_spark.store import Store
from ffq_spark.store.confined import leads_outside
from ffq_spark.store.location import split

logger = logging.getLogger("ffq_spark.service")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
# The directories in the root of every exchange.
_OWN_NAMES = (paths.RECORDS, paths.DATA)


def named_roots(roots: Sequence[str]) -> dict[str, str]:
    """Return roots by name, from `NAME=ROOT` or from the last part of each path.

    >>> named_roots(["/data/orders", "lake=s3://bucket/lake"])
    {'orders': '/data/orders', 'lake': 's3://bucket/lake'}
    """
    by_name: dict[str, str] = {}
    for argument in roots:
        name, equals, root = argument.partition("=")
        if not equals or not _NAME.fullmatch(name):
            name, root = argument.rstrip("/").rpartition("/")[2], argument
        if not _NAME.fullmatch(name):
            # The message does not quote the root: it may contain a login.
            raise BadOption(
                "the last part of a root's path is not a valid name: give NAME=ROOT",
                option="roots",
            )
        if name in by_name:
            raise BadOption(f"two roots have the name {name!r}: give NAME=ROOT", option="roots")
        by_name[name] = root
    return by_name


class Roots:
    """The served roots by name. Each is an exchange or a directory of exchanges.

    All roots are opened once at the start, so that a service with a bad root does not start.

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
                raise BadOption(
                    f"{name!r} is not a valid name of a root: use letters, digits, `.`, `_`, `-`",
                    option="roots",
                )
        self._listed = tuple(roots)
        self._storage_options = dict(storage_options or {})
        self._roots: dict[str, str] = {}
        spellings = {}
        for name, root in {**roots, **(hidden or {})}.items():
            store = self._open(name, root)
            # A relative root must not follow the process to another directory.
            self._roots[name] = store.url() if store.is_local else root
            spellings[name] = {store.url(), self._roots[name].rstrip("/")}
        self.texts = PublicTexts(spellings)

    def _open(self, name: str, root: str) -> Store:
        try:
            return Store(root, self._storage_options, confined=True)
        except BadOption as error:
            raise BadOption(f"root {name!r}: {error.message}", option="roots") from None

    def store(self, exchange: str) -> Store:
        """Return the store of `root` or `root/name`, whether or not the exchange exists."""
        name, _, child = exchange.partition("/")
        root = self._roots.get(name)
        if root is None or (child and not _NAME.fullmatch(child)):
            raise ExchangeNotFound(f"the service has no root {name!r}")
        if child:
            protocol, path = split(root)
            if protocol == "file" and leads_outside(path, child):
                raise ExchangeNotFound(f"there is no exchange {exchange!r}")
            root = f"{root.rstrip('/')}/{child}"
        return Store(root, self._storage_options, confined=True)

    def store_to_begin(self, exchange: str) -> Store:
        """Return the store of an exchange in which a write begins.

        Raise BadRequest if a new exchange would lie inside another one or around others.
        """
        store = self.store(exchange)
        name, _, child = exchange.partition("/")
        if is_exchange(store) and child not in _OWN_NAMES:
            return store
        if not child:
            # Another write may begin here at the same time.
            if any(exchange != name for exchange in self._exchanges_in(name)):
                raise BadRequest(f"{name} is a directory of exchanges: write to {name}/NAME")
        elif is_exchange(self.store(name)):
            raise BadRequest(
                f"{name} is an exchange: write to {name}, or to an exchange of another root"
            )
        elif child in _OWN_NAMES and not is_exchange(store):
            raise BadRequest(
                f"{' and '.join(_OWN_NAMES)} are directories of an exchange: choose another name"
            )
        return store

    def exchanges(self, may_read: Callable[[str], bool] = lambda _: True) -> Iterator[str]:
        """Yield the names of all exchanges in the roots that a caller may read.

        Hidden roots are left out. A root that cannot be listed is yielded in place of its
        exchanges, so that its listing shows the error.
        """
        for name in filter(may_read, self._listed):
            try:
                names = list(self._exchanges_in(name))
            except StoreFailed as error:
                logger.warning("cannot list the root %r: %s", name, error)
                names = [name]
            yield from names

    def _exchanges_in(self, name: str) -> Iterator[str]:
        store = self.store(name)
        if is_exchange(store):
            yield name
            return
        for entry in store.list(""):
            child = f"{name}/{entry.name}"
            if entry.is_dir and _NAME.fullmatch(entry.name) and self._is_exchange(child):
                yield child

    def _is_exchange(self, name: str) -> bool:
        try:
            return is_exchange(self.store(name))
        except ExchangeNotFound:
            # A link that leads out of the root.
            return False
        except StoreFailed:
            # Its listing shows the error.
            return True

    def hide_paths(self, text: str) -> str:
        """Replace the paths of roots in a text by their names."""
        return self.texts.hide(text)
