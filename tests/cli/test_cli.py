"""The command line: what each verb shows, as a table and as JSON, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions

ROWS = 40


@pytest.fixture
def exchange(root: str) -> Exchange:
    """Two steps: 40 rows, then one more."""
    batch = pa.record_batch({"id": list(range(ROWS)), "name": [f"n{i}" for i in range(ROWS)]})
    options = WriteOptions(keys=("id",), partitions=4)
    write_batches(root, [batch], options=options)
    write_batches(root, [batch.slice(0, 1)], options=options)
    return Exchange(root)


def run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [os.path.join(os.path.dirname(sys.executable), "ffq-spark"), *arguments]
    environment = {**os.environ, **({"PATH": path} if path is not None else {})}
    return subprocess.run(command, capture_output=True, env=environment, check=False)


def as_json(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ls_finds_the_exchange_at_a_path_and_those_below(exchange: Exchange) -> None:
    above = str(Path(exchange.root).parent)
    for place in (exchange.root, above):
        (found,) = as_json("ls", place)
        assert (found["root"], found["rows"], found["step"]) == (exchange.root, ROWS + 1, 2)
    assert exchange.root.encode() in run("ls", above).stdout


def test_ls_shows_a_broken_exchange_and_goes_on(exchange: Exchange, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "_ffq"
    broken.mkdir(parents=True)
    (broken / "format.json").write_text("{")
    done = run("ls", str(tmp_path), "--json")
    assert done.returncode == 1
    errors = {Path(row["root"]).name: row["error"] for row in json.loads(done.stdout)}
    assert errors["exchange"] == "" and "FFQ_CORRUPT_RECORD" in errors["broken"]


def test_show_names_keys_columns_and_types(exchange: Exchange) -> None:
    shown = as_json("show", exchange.root)
    assert shown["keys"] == ["id"] and shown["partitions"] == 4
    assert shown["columns"] == ["id int64", "name string"]
    text = run("show", exchange.root).stdout.decode()
    assert "id int64, name string" in text


def test_show_prints_types_with_brackets_whole(root: str) -> None:
    batch = pa.record_batch({"t": pa.array([0], pa.timestamp("us", "UTC"))})
    write_batches(root, [batch], options=WriteOptions())
    assert b"t timestamp[us, tz=UTC]" in run("show", root).stdout


def test_steps_lists_the_log(exchange: Exchange) -> None:
    listed = as_json("steps", exchange.root)
    assert [(s["step"], s["rows"], s["mode"]) for s in listed] == [
        (1, ROWS, "append"),
        (2, 1, "append"),
    ]


def test_parts_lists_what_a_read_opens(exchange: Exchange) -> None:
    everything = as_json("parts", exchange.root)
    assert sum(part["rows"] for part in everything) == ROWS + 1
    some = as_json("parts", exchange.root, "--steps", "1", "--partitions", "0-1")
    assert {part["reduce"] for part in some} == {0, 1} and {part["step"] for part in some} == {1}


def test_attempts_tells_the_registered_from_the_rest(exchange: Exchange) -> None:
    (Path(exchange.root) / "shuffle/99/0/0/1").mkdir(parents=True)
    states = {a["query"]: a["state"] for a in as_json("attempts", exchange.root)}
    assert sorted(states.values()) == ["orphan", "registered", "registered"]
    assert states[99] == "orphan"


def test_lookup_gives_the_rows_of_a_key(exchange: Exchange) -> None:
    assert as_json("lookup", exchange.root, "7") == [{"id": 7, "name": "n7"}]
    assert len(as_json("lookup", exchange.root, "0", "--columns", "name")) == 2
    assert len(as_json("lookup", exchange.root, "0", "--as-of-step", "1")) == 1


def test_lookup_of_a_missing_key_is_a_finding(exchange: Exchange) -> None:
    done = run("lookup", exchange.root, str(ROWS), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, [])


def test_fetch_gives_the_bytes_of_the_file(exchange: Exchange, tmp_path: Path) -> None:
    part = exchange.parts().to_pylist()[0]
    place = [f"--query={part['query']}", "--map-task=0", f"--reduce={part['reduce']}"]
    data = Path(exchange.root, part["file"]).read_bytes()
    expected = data[part["offset"] : part["offset"] + part["bytes"]]
    assert run("fetch", exchange.root, *place).stdout == expected
    target = tmp_path / "part"
    run("fetch", exchange.root, *place, "--start-offset=3", "--max-bytes=5", "-o", str(target))
    assert target.read_bytes() == expected[3:8]


def test_verify_finds_damage(exchange: Exchange) -> None:
    assert as_json("verify", exchange.root)["ok"] is True
    part = Path(exchange.root, exchange.parts()["file"][0].as_py())
    part.write_bytes(part.read_bytes()[:-1])
    done = run("verify", exchange.root, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["findings"][0]["code"] == "FFQ_CORRUPT_PART"
    assert str(part).encode() in run("verify", exchange.root).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["show", "/no/such/place"], 2, "FFQ_EXCHANGE_NOT_FOUND"),
        (["lookup", "ROOT", "x"], 2, "FFQ_BAD_OPTION"),
        (["parts", "ROOT", "--steps", "9"], 2, "FFQ_STEP_NOT_FOUND"),
        (["show", "ROOT", "--storage", "nonsense"], 2, "NAME=VALUE"),
        (["nonsense"], 2, "No such command"),
        (["show", "s3://127.0.0.1/x", "--storage", "endpoint_url=http://127.0.0.1:1"], 3, "FFQ_"),
    ],
)
def test_errors_say_what_is_wrong_and_set_the_exit_code(
    exchange: Exchange, arguments: list[str], code: int, text: str
) -> None:
    done = run(*(exchange.root if word == "ROOT" else word for word in arguments))
    assert done.returncode == code and text in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_errors_are_json_for_machines(exchange: Exchange) -> None:
    done = run("lookup", exchange.root, "x", "--json")
    assert json.loads(done.stderr)["error"] == "FFQ_BAD_OPTION"


def test_no_verb_needs_java(exchange: Exchange) -> None:
    assert run("show", exchange.root, path="").returncode == 0
