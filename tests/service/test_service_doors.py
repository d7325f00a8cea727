"""Who gets in: tokens, scopes, roots, TLS, limits; and how the service is emptied."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from pyarrow import flight
from service_scene import rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    BadRequest,
    ExchangeNotFound,
    FfqError,
    Forbidden,
    StoreFailed,
    Unauthenticated,
    Unavailable,
)
from ffq_spark.service.auth.tokens import Tokens, new_token
from ffq_spark.service.server.roots import named_roots

BIN = os.path.dirname(sys.executable)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        write(str(tmp_path / "lake" / name), rows(0, 100))
    write(str(tmp_path / "other"), rows(0, 50))
    return tmp_path


def token_file(
    place: Path, **who: tuple[list[str], list[str] | None]
) -> tuple[str, dict[str, str]]:
    """A file of tokens, and the secrets by name."""
    made = {name: new_token(name, *given) for name, given in who.items()}
    path = place / "tokens.json"
    path.write_text(json.dumps([entry for _, entry in made.values()]))
    path.chmod(0o600)
    return str(path), {name: secret for name, (secret, _) in made.items()}


# --- tokens -----------------------------------------------------------------------------------


def test_every_call_needs_a_token_that_is_known(lake: Path) -> None:
    path, secrets = token_file(lake, reader=(["read"], None))
    with ffq.serve({"lake": str(lake / "lake")}, port=0, tokens=path) as service:
        right = ffq.connect(service.url, secrets["reader"])
        assert right.exchanges() == ["lake/a", "lake/b"]
        ticket = right.exchange("lake/a").tasks()[0]
        hashed = json.loads(Path(path).read_text())[0]["sha256"]
        for wrong in (None, "", "x", secrets["reader"] + "x", secrets["reader"][:-1], hashed):
            stranger = ffq.connect(service.url, wrong)
            for ask in (
                stranger.exchanges,
                stranger.health,
                lambda who=stranger: who.exchange("lake/a").read(),
                lambda who=stranger: list(who.stream(ticket)),
                lambda who=stranger: list(who.client.list_actions(who.options)),
            ):
                with pytest.raises((Unauthenticated, Exception)) as caught:
                    ask()
                assert "FFQ_UNAUTHENTICATED" in str(caught.value)
                assert not wrong or wrong not in str(caught.value)
        assert secrets["reader"] not in Path(path).read_text()


def test_scopes_and_roots_are_kept_apart(lake: Path) -> None:
    path, secrets = token_file(
        lake,
        reader=(["read"], ["lake"]),
        writer=(["write"], ["lake"]),
        other=(["read", "write", "cancel"], ["other"]),
    )
    roots = {"lake": str(lake / "lake"), "other": str(lake / "other")}
    with ffq.serve(roots, port=0, tokens=path, writable=True) as service:
        who = {name: ffq.connect(service.url, secret) for name, secret in secrets.items()}
        schema = rows(0, 1).schema
        assert who["reader"].exchanges() == ["lake/a", "lake/b"]
        assert who["other"].exchanges() == ["other"]
        assert who["writer"].exchanges() == []
        assert who["reader"].exchange("lake/a").read().read_all().num_rows == 100
        write_a = who["writer"].exchange("lake/a").begin(schema)
        for refused in (
            lambda: who["other"].exchange("lake/a").read(),
            lambda: who["writer"].exchange("lake/a").read(),
            lambda: who["reader"].exchange("lake/a").begin(schema),
            lambda: who["other"].exchange("lake/a").begin(schema),
            lambda: who["reader"].exchange("lake/a").cancel(write_a.query, "no"),
            lambda: who["writer"].exchange("lake/a").cancel(write_a.query, "no"),
            lambda: who["other"].exchange("lake/a").status(write_a.query),
            lambda: who["other"].exchange("lake/a").fetch(write_a.query, 0, 0),
            lambda: who["reader"].action("Heartbeat", {"exchange": "lake/a", "query": 1}),
            lambda: who["writer"].action("Check", {"exchange": "lake/a"}),
        ):
            with pytest.raises(Forbidden):
                refused()
        theirs = type(write_a)(who["other"], "lake/a", write_a.query, schema)
        for refused in (
            lambda: theirs.put(0, [rows(0, 1)]),
            lambda: theirs.commit(1),
            lambda: theirs.abort(),
            lambda: theirs.register(0, 1),
        ):
            with pytest.raises(Forbidden):
                refused()
        # A ticket is no pass: another's token does not open it.
        (ticket,) = who["reader"].exchange("lake/a").tasks()
        with pytest.raises(Forbidden):
            list(who["other"].stream(ticket))


def test_who_may_only_cancel_does_not_learn_who_did_and_why(lake: Path) -> None:
    path, secrets = token_file(
        lake,
        writer=(["write", "cancel"], None),
        ops=(["cancel"], None),
        reader=(["read", "cancel"], None),
    )
    roots = {"lake": str(lake / "lake")}
    with ffq.serve(roots, port=0, tokens=path, writable=True) as service:
        who = {name: ffq.connect(service.url, s).exchange("lake/a") for name, s in secrets.items()}
        query = who["writer"].begin(rows(0, 1).schema).query
        own = {"query": query, "who": "writer", "message": "salary of Ada"}
        assert who["writer"].cancel(query, "salary of Ada") == own
        assert who["ops"].cancel(query, "mine") == {"query": query, "who": None, "message": ""}
        assert who["reader"].cancel(query, "mine") == own


def test_a_service_only_reads_unless_it_is_told_otherwise(lake: Path) -> None:
    with ffq.serve(str(lake / "other"), port=0) as service:
        exchange = ffq.connect(service.url).exchange("other")
        with pytest.raises(Forbidden, match="writable"):
            exchange.begin(rows(0, 1).schema)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"name": "x", "sha256": "0" * 64},
        {"name": "x", "sha256": "0" * 63, "scopes": ["read"]},
        {"name": "x", "sha256": "0" * 64, "scopes": "read"},
        {"name": "x", "sha256": "0" * 64, "scopes": ["admin"]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "root": ["lake"]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "roots": "lake"},
        "x",
    ],
    ids=str,
)
def test_a_mistake_in_the_file_of_tokens_opens_nothing(entry: Any) -> None:
    with pytest.raises(BadOption):
        Tokens([entry])


# --- who listens to whom ----------------------------------------------------------------------


def test_other_machines_are_listened_to_only_behind_tokens_and_tls(lake: Path) -> None:
    path, _ = token_file(lake, reader=(["read"], None))
    roots = {"other": str(lake / "other")}
    for options in ({"host": "0.0.0.0"}, {"host": "0.0.0.0", "tokens": path}, {"host": "host"}):
        with pytest.raises(BadOption):
            ffq.serve(roots, port=0, **options)
    with ffq.serve(roots, port=0) as service:
        assert service.url.startswith("grpc+tcp://127.0.0.1:")


@pytest.mark.parametrize(
    "options",
    [
        {"tls_certificate": "c"},
        {"tls_key": "k"},
        {"tls_client_ca": "a"},
        {"tls_certificate": "/none/c", "tls_key": "/none/k"},
        {"tokens": "/none/t"},
        {"max_reader": 1},
    ],
    ids=str,
)
def test_options_that_cannot_be_right_are_refused(options: dict[str, Any], root: str) -> None:
    with pytest.raises(FfqError) as caught:
        ffq.serve({"x": root}, port=0, **options)
    assert caught.value.error_class.value == "config"


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


# --- TLS --------------------------------------------------------------------------------------


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def pem(place: Path, name: str, *blobs: Any) -> str:
    path = place / f"{name}.pem"
    path.write_bytes(b"".join(blob.bytes() for blob in blobs))
    path.chmod(0o600)
    return str(path)


def certificate(place: Path, name: str, ca: trustme.CA, **given: Any) -> dict[str, str]:
    made = ca.issue_cert("localhost", "127.0.0.1", **given)
    return {
        "tls_certificate": pem(place, f"{name}-cert", *made.cert_chain_pems),
        "tls_key": pem(place, f"{name}-key", made.private_key_pem),
    }


def test_tls_hides_the_rows_and_shows_who_serves(lake: Path, authority: trustme.CA) -> None:
    given = certificate(lake, "server", authority)
    ca = pem(lake, "ca", authority.cert_pem)
    strange = pem(lake, "strange", trustme.CA().cert_pem)
    with ffq.serve({"x": str(lake / "other")}, port=0, **given) as service:
        assert service.url.startswith("grpc+tls://")
        right = ffq.connect(service.url, tls_ca=ca)
        assert right.exchange("x").read().read_all().num_rows == 50
        for wrong in (
            ffq.connect(service.url, tls_ca=strange, retries=0),
            ffq.connect(service.url.replace("+tls", "+tcp"), retries=0),
        ):
            with pytest.raises(Unavailable):
                wrong.exchanges()


def test_a_certificate_that_has_expired_is_refused(lake: Path, authority: trustme.CA) -> None:
    past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    given = certificate(lake, "old", authority, not_after=past)
    ca = pem(lake, "ca", authority.cert_pem)
    serving = ffq.serve({"x": str(lake / "other")}, port=0, **given)
    with serving as service, pytest.raises(Unavailable):
        ffq.connect(service.url, tls_ca=ca, retries=0).exchanges()


def test_mutual_tls_asks_callers_for_a_certificate_too(lake: Path, authority: trustme.CA) -> None:
    clients = trustme.CA()
    past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    server = certificate(lake, "server", authority)
    ca = pem(lake, "ca", authority.cert_pem)
    accepted = pem(lake, "clients", clients.cert_pem)
    with ffq.serve({"x": str(lake / "other")}, port=0, tls_client_ca=accepted, **server) as service:
        right = certificate(lake, "right", clients)
        assert ffq.connect(service.url, tls_ca=ca, **right).exchanges() == ["x"]
        for wrong in (
            {},
            certificate(lake, "strange", trustme.CA()),
            certificate(lake, "expired", clients, not_after=past),
        ):
            with pytest.raises(Unavailable):
                ffq.connect(service.url, tls_ca=ca, retries=0, **wrong).exchanges()


# --- nothing outside the roots ----------------------------------------------------------------

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
    """Even one that was put where a part or a record belongs."""
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
        with pytest.raises(StoreFailed, match="leads out of the root"):
            list(exchange.read_task(ticket))
        (lake / "lake" / "b" / "_ffq" / "exchange.json").unlink()
        (lake / "lake" / "b" / "_ffq" / "exchange.json").symlink_to(
            lake / "other/_ffq/exchange.json"
        )
        with pytest.raises(StoreFailed, match="leads out of the root"):
            ffq.connect(service.url).exchange("lake/b").read()


# --- limits -----------------------------------------------------------------------------------


def test_requests_and_uploads_that_are_too_large_are_refused(lake: Path) -> None:
    options = {"max_request_bytes": 2_000, "max_upload_bytes": 10_000, "writable": True}
    with ffq.serve({"x": str(lake / "other")}, port=0, **options) as service:
        connection = ffq.connect(service.url)
        for ask in (
            lambda: list(connection.stream(b"x" * 3_000)),
            lambda: connection.action("Check", {"exchange": "x" * 3_000}),
            lambda: connection.exchanges("x" * 3_000),
            lambda: connection.exchange("x").read(columns=["c" * 3_000]),
        ):
            with pytest.raises(BadRequest, match="exceeds the limit of"):
                ask()
        batch = rows(0, 2_000)
        upload = connection.exchange("x").begin(batch.schema)
        with pytest.raises(BadRequest, match="exceeds the limit of"):
            upload.put(0, [batch])


def test_readers_beyond_the_limit_wait_and_are_told_to_come_again(root: str) -> None:
    write(root, rows(0, 200_000, width=200), partitions=1)
    options = {"max_readers": 1, "max_wait": 0, "server_credits": 1 << 20}
    with ffq.serve({"x": root}, port=0, drain_seconds=0, **options) as service:
        slow = ffq.connect(service.url)
        reader = slow.exchange("x").read()
        reader.read_next_batch()
        with pytest.raises(Unavailable, match=r"all reader slots \(1\) stayed busy"):
            ffq.connect(service.url, retries=0).exchange("x").read().read_next_batch()
        assert slow.health()["readers"] == 1
        # The place is free as soon as the first reader hangs up.
        slow.close()
        del reader
        found = ffq.connect(service.url, retries=12).exchange("x").read().read_all()
        assert found.num_rows == 200_000


# --- health, metrics and the end --------------------------------------------------------------


def test_health_and_metrics_tell_what_is_done(lake: Path) -> None:
    with ffq.serve({"x": str(lake / "other")}, port=0, metrics_port=0) as service:
        connection = ffq.connect(service.url)
        assert connection.health()["status"] == "SERVING"
        connection.exchange("x").read().read_all()
        with pytest.raises(FfqError):
            connection.exchange("none").read()
        assert service.metrics_url is not None
        assert service.metrics_url.startswith("http://127.0.0.1:")
        text = urllib.request.urlopen(service.metrics_url, timeout=10).read().decode()
        assert "ffq_service_rows_total 50.0" in text
        told = 'ffq_service_calls_total{method="get_flight_info",status="FFQ_EXCHANGE_NOT_FOUND"}'
        assert f"{told} 1.0" in text
        assert 'ffq_service_calls_total{method="stream",status="OK"} 1.0' in text
        assert "ffq_service_readers 0.0" in text


def test_while_it_is_emptied_calls_finish_and_new_ones_are_refused(root: str) -> None:
    write(root, rows(0, 300_000, width=100), partitions=1)
    service = ffq.serve({"x": root}, port=0, server_credits=1 << 20, max_readers=1)
    connection = ffq.connect(service.url, retries=0)
    reader = connection.exchange("x").read()
    count = reader.read_next_batch().num_rows
    closed: list[bool] = []
    closer = threading.Thread(target=lambda: closed.append(service.close(drain=60)))
    closer.start()
    while not service.server.activity.calls.draining:
        pass
    with pytest.raises(Unavailable, match="shutting down"):
        ffq.connect(service.url, retries=0).exchanges()
    assert count + sum(batch.num_rows for batch in reader) == 300_000
    closer.join(60)
    assert closed == [True]


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`ffq-spark serve` as a process, and its URL."""
    command = [f"{BIN}/ffq-spark", "serve", "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()


def test_the_command_serves_until_sigterm_and_drains(lake: Path) -> None:
    with serving(str(lake / "lake"), f"second={lake / 'other'}", "--port", "0") as (process, url):
        connection = ffq.connect(url)
        assert connection.exchanges() == ["lake/a", "lake/b", "second"]
        assert connection.exchange("second").read().read_all().num_rows == 50
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        with pytest.raises(Unavailable):
            ffq.connect(url, retries=0).exchanges()


def test_calls_that_do_not_end_are_cut_off(root: str) -> None:
    write(root, rows(0, 300_000, width=100), partitions=1)
    flags = ["--port", "0", "--drain-seconds", "0", "--server-credits", "1m", "--max-readers", "1"]
    with serving(f"x={root}", *flags) as (process, url):
        reader = ffq.connect(url, retries=0).exchange("x").read()
        reader.read_next_batch()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1
        with pytest.raises(Unavailable):
            reader.read_all()


def test_the_command_makes_tokens(lake: Path) -> None:
    file = str(lake / "t.json")

    def make(name: str, *flags: str) -> subprocess.CompletedProcess[bytes]:
        command = [f"{BIN}/ffq-spark", "token", name, "--file", file, "--json", *flags]
        return subprocess.run(command, capture_output=True, check=False)

    made = make("reader", "--scope", "read", "--root", "second")
    secret = json.loads(made.stdout)["token"]
    assert make("etl", "--scope", "read", "--scope", "write").returncode == 0
    assert make("etl", "--scope", "read").returncode == 2
    assert os.stat(file).st_mode & 0o777 == 0o600
    roots = [str(lake / "lake"), f"second={lake / 'other'}"]
    with serving(*roots, "--port", "0", "--tokens", file) as (_, url):
        assert ffq.connect(url, secret).exchanges() == ["second"]
        with pytest.raises(Unauthenticated):
            ffq.connect(url).exchanges()
