"""Names of roots and exchanges: never paths, and nothing outside the roots."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from service_scene import rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    BadRequest,
    ExchangeNotFound,
    StoreFailed,
)
from ffq_spark.service.server.roots import Roots, named_roots
from ffq_spark.store import Entry, Store


@pytest.mark.parametrize("roots", [{"results": "/x"}, {"a/b": "/x"}, {"..": "/x"}, {"": "/x"}])
def test_names_of_roots_are_plain(roots: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        ffq.serve(roots, port=0)


def test_roots_are_called_by_their_last_name() -> None:
    assert named_roots(["/a/b/", "s3://x/y", "z=/a/b=c"]) == {
        "b": "/a/b/",
        "y": "s3://x/y",
        "z": "/a/b=c",
    }
    for wrong in (["/a/x", "/b/x"], ["/"], ["/a/.."]):
        with pytest.raises(BadOption):
            named_roots(wrong)


LOGINS = ["grpc://u:PW@127.0.0.1:1", "grpc//u:PW@host:1", "grpc://u:PW@host:x", "u:PW@host"]


@pytest.mark.parametrize("url", LOGINS)
def test_a_login_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    for ask in (
        lambda: ffq.connect(url, retries=0).exchanges(),
        lambda: named_roots([url]),
        lambda: ffq.serve([url], port=0),
    ):
        with pytest.raises(BadOption) as caught:
            ask()
        assert "PW" not in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize("root", ["foo://x", "s3://KEY:Zebra@b/x", "s3//KEY:Zebra@b/x", ""])
def test_a_root_that_cannot_be_opened_is_refused_by_its_name_at_the_start(
    root: str, lake: Path
) -> None:
    with pytest.raises(BadOption, match="root 'bad'") as caught:
        ffq.serve({"good": str(lake / "lake"), "bad": root}, port=0)
    assert caught.value.option == "roots" and "Zebra" not in str(caught.value)


@pytest.mark.parametrize("root", ["x", "./x/", "x/../x"])
def test_a_relative_root_stays_where_it_was_and_hides_its_path(
    root: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake)
    (lake / "lake").rename(lake / "x")
    roots = Roots({"orders": root})
    monkeypatch.chdir("/")
    assert list(roots.exchanges()) == ["orders/a", "orders/b"]
    assert roots.store("orders/a").url() == f"{lake}/x/a"
    text = f"next exchange: extra (file {lake}/x/a/f). Expect docs/x.md"
    assert roots.hide_paths(text) == "next exchange: extra (file orders/a/f). Expect docs/x.md"


def test_the_whole_disk_as_a_root_leaves_errors_readable(lake: Path) -> None:
    with ffq.serve({"disk": "/"}, port=0) as service:
        connection = ffq.connect(service.url, retries=0)
        with pytest.raises(ExchangeNotFound) as caught:
            connection.exchange("disk/none").read()
    assert "[FFQ_EXCHANGE_NOT_FOUND]" in str(caught.value)
    assert str(caught.value).count("disk") == 1


TRICKS = [
    *("..", "../other", "lake/..", "lake/../other", "lake/../../etc", "/etc", "lake//a", "lake/"),
    *("lake/a/..", "lake/%2e%2e", "%2e%2e/other", "lake\\..\\other", "file:///etc", "lake/.hidden"),
    *("memory://x", "s3://bucket", "lake/a\x00", "lake/a\n", "", ".", "lake/link", "lake/a/b"),
]


@pytest.mark.parametrize("name", TRICKS)
def test_a_name_that_is_a_path_is_refused(lake: Path, name: str) -> None:
    (lake / "lake" / "link").symlink_to(lake / "other")
    with ffq.serve({"lake": str(lake / "lake")}, port=0) as service:
        connection = ffq.connect(service.url)
        assert connection.exchanges() == ["lake/a", "lake/b"]
        with pytest.raises((BadRequest, ExchangeNotFound)):
            connection.exchange(name).read()
        body = json.dumps({"kind": "read", "exchange": name}).encode()
        for descriptor in (
            flight.FlightDescriptor.for_command(body),
            flight.FlightDescriptor.for_path(*name.split("/")),
            flight.FlightDescriptor.for_path(name),
        ):
            with pytest.raises(Exception, match=r"FFQ_BAD_REQUEST|FFQ_EXCHANGE_NOT_FOUND"):
                connection.client.get_flight_info(descriptor)


def test_links_inside_an_exchange_do_not_lead_out_of_it(lake: Path) -> None:
    """A link in place of a part or a record is refused as well."""
    secret = lake / "secret.ipc"
    root = lake / "lake" / "a"
    part = next(root.glob("shuffle/*/*/*/*/part*.ipc"))
    secret.write_bytes(part.read_bytes())
    with ffq.serve({"lake": str(lake / "lake")}, port=0) as service:
        exchange = ffq.connect(service.url).exchange("lake/a")
        (ticket,) = exchange.tasks()
        assert sum(batch.num_rows for batch in exchange.read_task(ticket)) == 100
        part.unlink()
        part.symlink_to(secret)
        with pytest.raises(StoreFailed, match="PermissionError"):
            list(exchange.read_task(ticket))
        (lake / "lake" / "b" / "_ffq" / "exchange.json").unlink()
        (lake / "lake" / "b" / "_ffq" / "exchange.json").symlink_to(
            lake / "other/_ffq/exchange.json"
        )
        with pytest.raises(StoreFailed, match="PermissionError"):
            ffq.connect(service.url).exchange("lake/b").read()


# --- listing ----------------------------------------------------------------------------------


def unreachable(name: str) -> dict[str, Any]:
    """Return storage options with which no request succeeds; each name gets a client of its own."""
    config = {"retries": {"total_max_attempts": "1"}, "user_agent": name}
    endpoint = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
    return {**endpoint, "config_kwargs": config}


def test_a_root_that_cannot_be_read_does_not_hide_the_others(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = {"lake": str(lake / "lake"), "private": "s3://payroll/x", "other": str(lake / "other")}
    options = unreachable("listing")
    with ffq.serve(served, port=0, storage_options=options) as service:
        connection = ffq.connect(service.url, retries=0)
        assert connection.exchanges() == ["lake/a", "lake/b", "private", "other"]
        infos = {
            info.descriptor.path[0].decode(): json.loads(info.app_metadata)
            for info in connection.client.list_flights()
        }
        assert "step" in infos["other"] and "payroll" not in str(infos)
        assert infos["private"]["error"].startswith("[FFQ_STORE_FAILED] cannot ")
        assert "(file private/" in infos["private"]["error"]
    assert "cannot list the root 'private'" in caplog.text and "s3://payroll/x" in caplog.text


def test_an_exchange_that_cannot_be_read_does_not_hide_the_others(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Store.read

    def refuse(store: Store, path: str) -> bytes:
        if store.url().endswith("lake/a"):
            raise StoreFailed("cannot read: PermissionError: no")
        return read(store, path)

    monkeypatch.setattr(Store, "read", refuse)
    roots = Roots({"lake": str(lake / "lake"), "other": str(lake / "other")})
    assert list(roots.exchanges()) == ["lake/a", "lake/b", "other"]


def test_roots_that_the_caller_may_not_read_are_not_touched(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = []
    scan = Store.scan

    def look(store: Store, path: str) -> Iterator[Entry]:
        touched.append(store.url())
        return scan(store, path)

    monkeypatch.setattr(Store, "scan", look)
    roots = Roots({"lake": str(lake / "lake"), "other": str(lake / "other")})
    assert list(roots.exchanges(lambda name: name == "lake")) == ["lake/a", "lake/b"]
    assert touched and not any(url.startswith(str(lake / "other")) for url in touched)


# --- new exchanges ----------------------------------------------------------------------------


@pytest.fixture
def writable(lake: Path) -> Iterator[Any]:
    """Serve a directory of exchanges, an exchange and an empty directory."""
    (lake / "empty").mkdir()
    served = {name: str(lake / name) for name in ("lake", "other", "empty", "new")}
    with ffq.serve(served, port=0, writable=True) as service:
        yield ffq.connect(service.url, retries=0)


def files(place: Path) -> list[str]:
    return sorted(str(path) for path in place.rglob("*"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("other/_ffq", "other is an exchange"),
        ("other/shuffle", "other is an exchange"),
        ("other/inner", "other is an exchange"),
        ("lake", "lake is a directory of exchanges: write to lake/NAME"),
        ("lake/_ffq", "_ffq and shuffle"),
        ("empty/_ffq", "_ffq and shuffle"),
        ("empty/shuffle", "_ffq and shuffle"),
        ("new/shuffle", "_ffq and shuffle"),
    ],
)
def test_no_exchange_is_begun_inside_another_or_around_others(
    writable: Any, lake: Path, name: str, reason: str
) -> None:
    before = files(lake)
    with pytest.raises(BadRequest, match=reason):
        writable.exchange(name).begin(rows(0, 1).schema, keys="id", partitions=2)
    assert files(lake) == before


@pytest.mark.parametrize(
    "name", ["other", "lake/a", "lake/fresh", "empty", "new", "new/fresh", "empty/fresh"]
)
def test_exchanges_are_begun_and_continued_beside_each_other(writable: Any, name: str) -> None:
    for _ in range(2):
        step = writable.exchange(name).begin(rows(0, 1).schema, keys="id", partitions=8)
        step.put(0, [rows(0, 10)])
        assert step.commit(1)["rows"] == 10
    assert name in writable.exchanges()


def test_exchanges_that_others_made_with_unusual_names_are_continued(
    writable: Any, lake: Path
) -> None:
    """The names inside an exchange are free in a directory that is none."""
    for name in ("lake/shuffle", "other/inner"):
        write(str(lake / name), rows(0, 10))
        step = writable.exchange(name).begin(rows(0, 1).schema)
        step.put(0, [rows(0, 5)])
        assert step.commit(1)["rows"] == 5
        assert writable.exchange(name).read().read_all().num_rows == 15
    assert "lake/shuffle" in writable.exchanges()
