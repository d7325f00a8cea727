"""Every spelling of a root that Spark users know means the same location."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffq_spark.store import Store
from ffq_spark.store.local import LocalBackend
from ffq_spark.store.location import open_backend, split
from ffq_spark.store.remote import RemoteBackend


@pytest.mark.parametrize(
    ("root", "protocol", "path"),
    [
        ("/data/x", "file", "/data/x"),
        ("/data/x/", "file", "/data/x"),
        ("/", "file", "/"),
        ("data/x", "file", "data/x"),
        ("./x", "file", "./x"),
        ("file:/data/x", "file", "/data/x"),
        ("file:///data/x/", "file", "/data/x"),
        ("FILE:///data/x", "file", "/data/x"),
        ("/data/a:b", "file", "/data/a:b"),
        ("/data/k=1 %20/é", "file", "/data/k=1 %20/é"),
        ("s3://bucket/x", "s3", "bucket/x"),
        ("s3a://bucket/x/", "s3", "bucket/x"),
        ("s3n://bucket/x//", "s3", "bucket/x"),
        ("S3A://Bucket/X", "s3", "Bucket/X"),
        ("gs://bucket/x", "gs", "bucket/x"),
        ("memory://x/y", "memory", "x/y"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfs", "c@account.dfs.core.windows.net/x"),
    ],
)
def test_a_root_is_split_into_protocol_and_path(root: str, protocol: str, path: str) -> None:
    assert split(root) == (protocol, path)


def test_a_local_root_needs_no_object_store_client() -> None:
    assert isinstance(open_backend("/data/x", {}), LocalBackend)
    assert isinstance(open_backend("file:/data/x", {}), LocalBackend)
    assert isinstance(open_backend("s3a://bucket/x", {}), RemoteBackend)


def test_every_spelling_of_a_local_root_sees_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Store("x").write("f", [b"1"])
    for root in ("x/", "./x", f"{tmp_path}/x", f"file:{tmp_path}/x", f"file://{tmp_path}/x/"):
        assert Store(root).read("f") == b"1"


def test_a_relative_root_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("x")
    store.write("f", [b"1"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.read("f") == b"1"


def test_a_url_names_the_file_and_the_root() -> None:
    assert Store("s3a://bucket/x/").url("d/f") == "s3://bucket/x/d/f"
    assert Store("s3://bucket/x").url() == "s3://bucket/x"
    assert Store("/data/x").url("d/f") == "/data/x/d/f"
    assert Store("/data/x").url() == "/data/x"
