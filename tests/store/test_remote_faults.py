"""Storage that throttles, fails, is slow, cuts or loses answers never changes the rows."""

from __future__ import annotations

import random
import ssl
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from conftest import Place
from layouts import write_options
from s3proxy import KINDS, Fault, S3Proxy, on

from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import paths
from ffq_spark.store import Store
from ffq_spark.store import remote as remote_module
from ffq_spark.store.retry import Policy

KIB = 1 << 10


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the retry policy with short waits."""
    monkeypatch.setattr(remote_module, "Policy", partial(Policy, first_seconds=0.005))


@pytest.fixture
def store(proxied: Place) -> Store:
    return Store(proxied.root, proxied.storage_options)


def batch_of(seed: int, rows: int = 2000) -> pa.RecordBatch:
    numbers = random.Random(seed)
    return pa.record_batch(
        {
            "k": [numbers.randrange(50) for _ in range(rows)],
            "id": [seed * 1_000_000 + n for n in range(rows)],
            "text": [numbers.randbytes(20).hex() for _ in range(rows)],
        }
    )


def rows_of(table: pa.Table) -> list[Any]:
    return sorted(map(tuple, (row.values() for row in table.to_pylist())))


def write(place: Place, *seeds: int) -> None:
    for seed in seeds:
        write_batches(
            place.root,
            [batch_of(seed)],
            options=write_options(keys=("k",), partitions=4),
            storage_options=place.storage_options,
        )


def check(place: Place, *seeds: int) -> None:
    """Check that the exchange holds exactly the rows of these writes, one step for each."""
    exchange = Exchange(place.root, place.storage_options)
    expected = pa.Table.from_batches([batch_of(seed) for seed in seeds])
    assert rows_of(exchange.read().read_all()) == rows_of(expected)
    assert len(exchange.steps()) == len(seeds)


# --- under TLS --------------------------------------------------------------------------------


@pytest.fixture
def behind_tls(s3: Any, tmp_path: Path) -> Iterator[tuple[Place, S3Proxy]]:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with S3Proxy(s3.port, context) as proxy:
        trusting = {"client_kwargs": {"verify": str(tmp_path / "ca.pem")}}
        options = {**s3.storage_options, **trusting, "endpoint_url": proxy.endpoint}
        yield Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", options), proxy


@pytest.mark.parametrize("kind", ["500", "cut", "drop", "reset", "lost"])
def test_an_exchange_is_written_and_read_through_faults_under_tls(
    behind_tls: tuple[Place, S3Proxy], kind: str
) -> None:
    place, proxy = behind_tls
    with proxy.faults(Fault(kind, share=0.3, seed=1)):
        write(place, 1, 2)
        check(place, 1, 2)
    assert proxy.struck()[kind] > 3


def test_a_server_that_nobody_vouches_for_is_refused_at_once(
    behind_tls: tuple[Place, S3Proxy],
) -> None:
    place, proxy = behind_tls
    options = {**place.storage_options, "client_kwargs": {}}
    with pytest.raises(StoreFailed, match=r"(?i)certificate"):
        Store(place.root, options).read("f")
    assert not proxy.requests


# --- whole exchanges --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_exchange_is_written_and_read_through_each_kind_of_fault(
    proxied: Place, proxy: S3Proxy, kind: str
) -> None:
    fault = Fault(kind, share=0.3, seed=1, bytes_per_second=256 * KIB)
    with proxy.faults(fault):
        write(proxied, 1, 2)
        check(proxied, 1, 2)
    assert proxy.struck()[kind] >= 5
    check(proxied, 1, 2)


def mixed(seed: int) -> list[Fault]:
    kinds = list(KINDS)
    random.Random(seed).shuffle(kinds)
    return [
        Fault(kind, share=0.06, seed=seed * 100 + number, bytes_per_second=1 << 20)
        for number, kind in enumerate(kinds)
    ]


def mix(place: Place, proxy: S3Proxy, seed: int) -> None:
    here = Place(f"{place.root}-{seed}", place.storage_options)
    with proxy.faults(*mixed(seed)):
        write(here, seed, seed + 1, seed + 2)
        check(here, seed, seed + 1, seed + 2)
    check(here, seed, seed + 1, seed + 2)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_exchange_is_written_and_read_through_a_mix_of_faults(
    proxied: Place, proxy: S3Proxy, seed: int
) -> None:
    mix(proxied, proxy, seed)
    assert len(proxy.struck()) >= 4


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 60))
def test_an_exchange_is_written_and_read_through_many_mixes(
    proxied: Place, proxy: S3Proxy, seed: int
) -> None:
    mix(proxied, proxy, seed)


def test_storage_that_never_recovers_is_an_error_and_never_fewer_rows(
    proxied: Place, proxy: S3Proxy
) -> None:
    write(proxied, 1)
    data = Fault("cut", lambda request: "/shuffle/" in request.path)
    with proxy.faults(data), pytest.raises(StoreFailed, match="gave up after 8 tries"):
        check(proxied, 1)
    # Each range is tried 8 times, including ranges that were requested concurrently.
    assert proxy.struck()["cut"] % 8 == 0
    check(proxied, 1)


# --- lost answers -----------------------------------------------------------------------------


def test_a_put_that_lost_to_itself_has_won(store: Store, proxy: S3Proxy) -> None:
    with proxy.faults(Fault("lost", on("PUT"), count=1)):
        assert store.create_once("r.json", b"mine")
    assert proxy.counts() == {"PUT": 2, "GET": 1}
    with proxy.faults(Fault("lost", on("PUT"), count=1)):
        assert not store.create_once("r.json", b"yours")
    assert store.read("r.json") == b"mine"


def test_a_probe_whose_answers_are_lost_finds_a_safe_store(store: Store, proxy: S3Proxy) -> None:
    for skipped in range(4):
        with proxy.faults(Fault("lost", _after(skipped), count=1)):
            assert store.probe_create_once() == "conditional-put"
    assert proxy.struck()["lost"] >= 3
    assert store.walk("") == []


def _after(count: int) -> Callable[[Any], bool]:
    """Return a condition that selects all requests after the first `count`."""
    seen: list[int] = []
    return lambda request: len(seen) >= count or bool(seen.append(1))


def test_a_commit_all_of_whose_puts_lose_their_first_answer_is_one_step(
    proxied: Place, proxy: S3Proxy
) -> None:
    seen: set[str] = set()

    def is_first(request: Any) -> bool:
        return request.operation == "PUT" and not (request.path in seen or seen.add(request.path))

    with proxy.faults(Fault("lost", is_first)):
        write(proxied, 1)
    assert proxy.struck()["lost"] == len(seen) >= 6
    check(proxied, 1)
    store = Store(proxied.root, proxied.storage_options)
    assert len(store.list(paths.STEPS)) == 1
    assert Ledger(store).roll_forward() == 0
    check(proxied, 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_commit_under_randomly_lost_answers_is_one_step(
    proxied: Place, proxy: S3Proxy, seed: int
) -> None:
    with proxy.faults(Fault("lost", share=0.4, seed=seed)):
        write(proxied, 1, 2)
    check(proxied, 1, 2)
    assert len(Store(proxied.root, proxied.storage_options).list(paths.STEPS)) == 2


# --- each verb --------------------------------------------------------------------------------


VERBS: dict[str, tuple[str, Callable[[Store], Any], Any]] = {
    "GET": ("GET", lambda store: store.read("d/f"), b"x" * 1000),
    "range": ("GET", lambda store: bytes(store.read_range("d/f", 10, 5)), b"x" * 5),
    "PUT": ("PUT", lambda store: store.write("d/g", [b"y"]), None),
    "create": ("PUT", lambda store: store.create_once("d/g", b"y"), True),
    "replace": ("PUT", lambda store: store.replace("d/g", b"y"), None),
    "LIST": ("LIST", lambda store: [entry.name for entry in store.list("d")], ["f"]),
    "walk": ("LIST", lambda store: store.walk("d"), [("d/f", 1000)]),
    "DELETE": ("DELETE", lambda store: store.delete("d/f"), None),
    "bulk": ("DELETE_MANY", lambda store: store.delete_many(["d/f", "d/g"]), None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_tried_until_it_succeeds_and_not_once_more(
    store: Store, proxy: S3Proxy, verb: str
) -> None:
    operation, work, expected = VERBS[verb]
    for kind in ("500", "503", "429", "drop", "reset"):
        store.write("d/f", [b"x" * 1000])
        store.delete("d/g")
        proxy.forget()
        with proxy.faults(Fault(kind, on(operation), count=3)):
            assert work(store) == expected
        assert proxy.counts() == {operation: 4}
        store.delete("d/g")


@pytest.mark.parametrize("verb", VERBS)
def test_after_eight_tries_each_verb_fails_and_says_so(
    store: Store, proxy: S3Proxy, verb: str
) -> None:
    operation, work, _ = VERBS[verb]
    store.write("d/f", [b"x" * 1000])
    proxy.forget()
    with proxy.faults(Fault("503")), pytest.raises(StoreFailed, match="after 8 tries") as caught:
        work(store)
    assert proxy.counts() == {operation: 8}
    assert "reduce your request rate" in str(caught.value)
    assert str(caught.value.path).startswith(store.url("d"))


@pytest.mark.parametrize("size", [2, 100_000, 3 << 20])
@pytest.mark.parametrize("range", [(0, None), (1, None), (0, 1 << 30), (1, 1 << 30)])
def test_a_cut_body_is_never_taken_for_the_whole(
    store: Store, proxy: S3Proxy, size: int, range: tuple[int, int | None]
) -> None:
    body = random.Random(size).randbytes(size)
    store.write("f", [body])
    with proxy.faults(Fault("cut", on("GET"), count=3)):
        assert bytes(store.read_range("f", *range)) == body[range[0] :]
    assert proxy.struck() == {"cut": 3}


def test_only_the_range_that_failed_is_read_again(store: Store, proxy: S3Proxy) -> None:
    store.write("f", [bytes(1000)])
    proxy.forget()
    with proxy.faults(Fault("cut", lambda request: request.range == "bytes=100-199", count=2)):
        for start in (0, 100, 200):
            assert len(store.read_range("f", start, 100)) == 100
    asked = [request.range for request in proxy.requests]
    assert asked == ["bytes=0-99", *["bytes=100-199"] * 3, "bytes=200-299"]
