"""Storage that fails at a chosen call, once or for good: refused, or with its answer lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conftest import Place

from ffq_spark.store import Store
from ffq_spark.store.location import open_backend

CALLS = ("read", "create", "write", "replace", "delete", "delete_many", "scan", "tree")


@dataclass
class Fault:
    """A fault of the n-th call (from 1); with `lost` the work is done and its answer lost."""

    call: int
    lost: bool = False
    for_good: bool = False
    only: str = ""
    """Count only calls that start with this text, such as `delete _ffq/pending`."""
    seen: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        how = "lost" if self.lost else "refused"
        return f"call {self.call} {how}, {'down from then on' if self.for_good else 'once'}"

    @property
    def met(self) -> bool:
        return len(self.seen) >= self.call

    @property
    def subject(self) -> str:
        """The first call that failed, such as `create _ffq/steps/…`."""
        return self.seen[self.call - 1]

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            operation = f"{name} {path}"
            if not operation.startswith(self.only):
                return work(path, *args, **kwargs)
            self.seen.append(operation)
            number = len(self.seen)
            fails = number >= self.call if self.for_good else number == self.call
            if fails and not (self.lost and number == self.call):
                raise PermissionError(f"{name} is refused")
            result = work(path, *args, **kwargs)
            if fails:
                raise TimeoutError(f"{name} gave no answer")
            return result

        return call


def failing(place: Place, fault: Fault) -> Store:
    """Open a store whose backend fails with this fault."""
    backend = open_backend(place.root, place.storage_options)
    for name in CALLS:
        setattr(backend, name, fault.around(name, getattr(backend, name)))
    return Store(place.root, place.storage_options, backend=backend)
