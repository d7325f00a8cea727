"""A confined root: neither names nor links lead outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ffq_spark.store.confined import ConfinedBackend, leads_outside

VERBS: dict[str, Callable[[ConfinedBackend, str], Any]] = {
    "read": lambda backend, path: backend.read(path),
    "create": lambda backend, path: backend.create(path, b"x"),
    "replace": lambda backend, path: backend.replace(path, b"x"),
    "write": lambda backend, path: backend.write(path, [memoryview(b"x")]),
    "scan": lambda backend, path: list(backend.scan(path)),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(b"secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    return tmp_path / "root"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", ["link/f", "../outside/f", "../root-2/f"])
def test_what_lies_outside_is_refused(verb: str, path: str, root: Path) -> None:
    with pytest.raises(PermissionError, match="leads out of the root"):
        VERBS[verb](ConfinedBackend(str(root)), path)
    assert (root.parent / "outside" / "f").read_bytes() == b"secret"


@pytest.mark.parametrize("verb", ["create", "replace", "write"])
def test_what_lies_inside_is_served(verb: str, root: Path) -> None:
    backend = ConfinedBackend(str(root))
    VERBS[verb](backend, "d/f")
    assert bytes(backend.read("d/f")) == b"x"
    assert [entry.name for entry in backend.scan("d")] == ["f"]


def test_a_root_that_is_a_link_itself_is_served(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    backend = ConfinedBackend(str(tmp_path / "alias"))
    backend.create("f", b"1")
    assert bytes(backend.read("f")) == b"1"


def test_links_are_told_from_directories(root: Path) -> None:
    (root / "own").mkdir()
    assert leads_outside(str(root), "link")
    assert not leads_outside(str(root), "own")
