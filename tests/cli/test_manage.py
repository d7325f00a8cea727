"""The verbs about queries, gc and versions, as tables, as JSON, and by their exit codes."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from command_line import as_json, run
from conftest import Place
from gc_scene import Scene, rows_of
from layouts import write_options

from ffq_spark.exchange.ledger.cancel import end_unfinished, read_cancel
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import paths


@pytest.fixture
def scene(root: str) -> Scene:
    return Scene(Place(root))


def test_status_lists_all_queries_or_one(scene: Scene) -> None:
    step, aborted, running = scene.write(), scene.ended(), scene.begin()
    listed = as_json("status", scene.exchange.root)
    assert [(row["query"], row["state"]) for row in listed] == [
        (step.body.query, "SUCCEEDED"),
        (aborted.query, "FAILED"),
        (running.query, "QUEUED"),
    ]
    assert listed[0]["ended"] >= listed[0]["started"] and listed[2]["ended"] is None
    assert as_json("status", scene.exchange.root, str(aborted.query)) == [listed[1]]
    text = run("status", scene.exchange.root).stdout
    assert "SUCCEEDED" in text and "QUEUED" in text and str(running.query) in text


def test_status_of_an_unknown_query_is_a_usage_error(scene: Scene) -> None:
    scene.write()
    done = run("status", scene.exchange.root, "12345")
    assert done.returncode == 2 and "FFQ_QUERY_NOT_FOUND" in done.stderr


def test_check_tells_what_is_no_longer_active(scene: Scene) -> None:
    aborted, _ = scene.ended(), scene.begin(lease_seconds=3600)
    gone = scene.ledger.begin("append", "app", query=7, lease_seconds=1)
    old = gone.encode().replace(str(gone.created_at_ms).encode(), b"1")
    scene.store.write(paths.query(7), [old])
    reasons = {row["query"]: row["why"] for row in as_json("check", scene.exchange.root)}
    assert reasons == {7: "lease gone", aborted.query: "ABORTED"}


def test_cancel_leaves_a_request_for_the_initiator(scene: Scene) -> None:
    query = scene.begin().query
    answer = as_json("cancel", scene.exchange.root, str(query), "-m", "too slow")
    record = read_cancel(scene.store, query)
    assert record is not None and record.message == "too slow"
    assert answer == {"query": query, "asked_by": record.who, "message": "too slow"}
    again = run("cancel", scene.exchange.root, str(query), "-m", "other")
    assert again.returncode == 0 and record.who in again.stdout and "too slow" in again.stdout


def test_cancel_of_what_has_ended_or_never_was_is_a_usage_error(scene: Scene) -> None:
    ended = scene.begin().query
    end_unfinished(scene.store, ended, "")
    for query, code in ((ended, "FFQ_QUERY_ENDED"), (12345, "FFQ_QUERY_NOT_FOUND")):
        done = run("cancel", scene.exchange.root, str(query), "--json")
        assert done.returncode == 2
        assert json.loads(done.stderr)["error"] == code
        assert read_cancel(scene.store, query) is None


def test_gc_removes_what_is_past_the_ttl(scene: Scene) -> None:
    step, _ = scene.twins()
    report = as_json("gc", scene.exchange.root)
    assert (report["files"], report["attempts"]) == (0, 0)
    stale = scene.data(step.body.query, 2)
    dry = as_json("gc", scene.exchange.root, "--ttl", "0", "--dry-run")
    assert dry["dry_run"] and dry["files"] == len(stale)
    assert scene.data(step.body.query, 2) == stale
    report = as_json("gc", scene.exchange.root, "--ttl", "0")
    assert report == {**dry, "dry_run": False}
    assert scene.data(step.body.query, 2) == set()
    assert scene.rows() == rows_of(step)


def test_gc_names_every_attempt_if_asked(scene: Scene) -> None:
    query = scene.twins()[0].body.query
    name = f"shuffle/{query}/0/0/2"
    flags = ["gc", scene.exchange.root, "--ttl", "0", "--list"]
    documents = [
        json.loads(line) for line in run(*flags, "--dry-run", "--json").stdout.splitlines()
    ]
    assert (
        documents[0] == {"attempt": name} and documents[1]["attempts"] == 1 and len(documents) == 2
    )
    lines = run(*flags).stdout.splitlines()
    assert lines[0] == name and lines[1].startswith("deleted ")


def test_gc_tells_people_what_it_did_and_would_do(scene: Scene) -> None:
    scene.twins()
    would = run("gc", scene.exchange.root, "--ttl", "0", "--dry-run").stdout
    did = run("gc", scene.exchange.root, "--ttl", "0").stdout
    assert would.startswith("would delete ") and did.startswith("deleted ")
    assert would.removeprefix("would delete") == did.removeprefix("deleted")
    assert " in 1 attempts" in did


def test_gc_expires_replaced_versions_when_asked(scene: Scene) -> None:
    for _ in range(3):
        scene.write("replace")
    assert as_json("gc", scene.exchange.root)["expired"] == []
    assert as_json("gc", scene.exchange.root, "--retention", "0")["expired"] == [1]
    read = run("parts", scene.exchange.root, "--steps", "1")
    assert read.returncode == 2 and "FFQ_STEP_EXPIRED" in read.stderr


def test_gc_that_had_to_leave_something_is_a_finding(scene: Scene) -> None:
    ended = scene.ended()
    scene.store.write(paths.outcome(ended.query), [b"{"])
    report = as_json("gc", scene.exchange.root, "--ttl", "0", code=1)
    (problem,) = report["problems"]
    assert "FFQ_CORRUPT_RECORD" in problem
    done = run("gc", scene.exchange.root, "--ttl", "0")
    assert done.returncode == 1 and "kept: " in done.stdout


@pytest.mark.parametrize(
    "wrong", [["--ttl", "-1"], ["--ttl", "nan"], ["--rule", "ffq"], ["--rule", "nonsense"]]
)
def test_gc_with_options_that_cannot_be_is_a_usage_error(scene: Scene, wrong: list[str]) -> None:
    scene.twins()
    everything = scene.everything()
    done = run("gc", scene.exchange.root, *wrong)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert scene.everything() == everything


def test_versions_and_rollback(scene: Scene) -> None:
    root = scene.place.root
    for mode in ("append", "append", "append", "replace"):
        scene.write(mode)
    assert as_json("rollback", root, "2") == {"step": 5, "restores": 2}
    listed = as_json("versions", root)
    assert [(v["version"], v["first_step"], v["rows"], v["restores"]) for v in listed] == [
        (1, 1, 15, 0),
        (2, 4, 5, 0),
        (3, 5, 10, 2),
    ]
    assert "restores" in run("versions", root).stdout
    done = run("rollback", root, "9")
    assert done.returncode == 2 and "FFQ_STEP_NOT_FOUND" in done.stderr


def test_rescale_prints_what_later_reads_use(root: str) -> None:
    options = write_options(keys=("k",), partitions=8)
    write_batches(root, [pa.record_batch({"k": [1, 2, 3]})], options=options)
    assert as_json("rescale", root, "12") == {
        "epoch": 1,
        "write_partitions": 12,
        "partitions": 8,
        "partitions_with_new_steps": 4,
    }
    shown = as_json("show", root)
    assert (shown["partitions"], shown["write_partitions"]) == (8, 12)
    done = run("rescale", root, "0")
    assert done.returncode == 2 and "FFQ_BAD_OPTION" in done.stderr
