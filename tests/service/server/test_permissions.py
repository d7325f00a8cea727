"""Scopes and roots of tokens, and what a caller may learn."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_scene import rows, token_file

import ffq_spark as ffq
from ffq_spark.errors import Canceled, Forbidden
from ffq_spark.service.client.write import RemoteWrite


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
        # A ticket grants no access: another caller's token cannot use it.
        (ticket,) = who["reader"].exchange("lake/a").tasks()
        with pytest.raises(Forbidden):
            list(who["other"].stream(ticket))


def test_a_listing_touches_only_the_roots_of_the_caller(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, secrets = token_file(lake, reader=(["read"], ["lake"]))
    config = {"retries": {"total_max_attempts": "1"}, "user_agent": "permissions"}
    options = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
    with ffq.serve(
        {"lake": str(lake / "lake"), "private": "s3://payroll/x"},
        port=0,
        tokens=path,
        storage_options={**options, "config_kwargs": config},
    ) as service:
        reader = ffq.connect(service.url, secrets["reader"], retries=0)
        assert reader.exchanges() == ["lake/a", "lake/b"]
    assert "payroll" not in caplog.text


def test_who_may_only_cancel_does_not_learn_who_did_and_why(lake: Path) -> None:
    path, secrets = token_file(
        lake,
        writer=(["write", "cancel"], None),
        ops=(["cancel"], None),
        reader=(["read", "cancel"], None),
        producer=(["write", "cancel"], None),
    )
    roots = {"lake": str(lake / "lake")}
    with ffq.serve(roots, port=0, tokens=path, writable=True) as service:
        who = {name: ffq.connect(service.url, s).exchange("lake/a") for name, s in secrets.items()}
        query = who["writer"].begin(rows(0, 1).schema).query
        own = {"query": query, "who": "writer", "message": "salary of Ada"}
        assert who["writer"].cancel(query, "salary of Ada") == own
        assert who["ops"].cancel(query, "mine") == {"query": query, "who": None, "message": ""}
        assert who["reader"].cancel(query, "mine") == own
        # Whoever may write to the exchange learns it from an upload as well.
        assert who["producer"].cancel(query, "mine") == own
        upload = RemoteWrite(who["producer"]._channel, "lake/a", query, rows(0, 1).schema)
        with pytest.raises(Canceled, match="canceled by writer: salary of Ada"):
            upload.put(0, [rows(0, 1)])


def test_a_service_only_reads_unless_it_is_told_otherwise(lake: Path) -> None:
    with ffq.serve(str(lake / "other"), port=0) as service:
        exchange = ffq.connect(service.url).exchange("other")
        with pytest.raises(Forbidden, match="writable"):
            exchange.begin(rows(0, 1).schema)
