"""The verbs that describe exchanges: ls, show, steps, parts, attempts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import ROWS, as_json, run, two_steps
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches


@pytest.fixture
def exchange(root: str) -> Exchange:
    return two_steps(root)


def test_ls_finds_the_exchange_at_a_path_and_those_below(exchange: Exchange) -> None:
    above = str(Path(exchange.root).parent)
    for place in (exchange.root, above):
        (listed,) = as_json("ls", place)
        assert (listed["root"], listed["rows"], listed["step"]) == (exchange.root, ROWS + 1, 2)
    assert exchange.root in run("ls", above).stdout


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
    text = run("show", exchange.root).stdout
    assert "id int64, name string" in text


def test_show_prints_types_with_brackets_whole(root: str) -> None:
    batch = pa.record_batch({"t": pa.array([0], pa.timestamp("us", "UTC"))})
    write_batches(root, [batch], options=write_options())
    assert "t timestamp[us, tz=UTC]" in run("show", root).stdout


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
