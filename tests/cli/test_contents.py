"""The verbs that read data: lookup, fetch, verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ROWS, as_json, run, run_bytes, two_steps

from ffq_spark import Exchange


@pytest.fixture
def exchange(root: str) -> Exchange:
    return two_steps(root)


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
    assert run_bytes("fetch", exchange.root, *place).stdout == expected
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
    assert str(part) in run("verify", exchange.root).stdout
