"""ffq-spark plan: the tasks of a read, both layouts side by side, one layout, invalid input."""

from __future__ import annotations

import json
import subprocess

import pyarrow as pa
import pytest
from command_line import as_json, run, two_steps
from layouts import write_options

from ffq_spark.exchange.write.local_write import write_batches


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("plan", *arguments)


SHAPE = ("--maps=2000", "--partitions=2000", "--bytes=1t")


def test_both_layouts_are_compared() -> None:
    done = plan(*SHAPE)
    assert done.returncode == 0
    lines = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert lines["write put requests"][-2:] == ["4,004,009", "74,009"]
    assert lines["write dollars"][-2:] == ["$20.02", "$0.3701"]
    assert "packed is cheaper" in done.stdout and "list prices" in done.stdout


def test_one_layout_as_json_with_prices_of_ones_own() -> None:
    flags = ("--layout=packed", "--tasks=125", "--get-price=1", "--put-price=0")
    answer = json.loads(plan(*SHAPE, *flags, "--json").stdout)
    assert answer["prices"] == {"put": 0.0, "get": 1.0, "storage": 0.023}
    (packed,) = answer["layouts"]
    assert (packed["layout"], packed["read_tasks"]) == ("packed", 125)
    assert packed["target_partition_bytes"] == 16 * 2000 * packed["part_bytes"]
    assert packed["read_get_requests"] == 250_012 and packed["read_dollars"] == 250.012


def test_the_target_decides_about_tasks() -> None:
    flags = ("--maps=10", "--partitions=64", "--bytes=64g", "--layout=parts", "--json")
    for target, tasks in (("1g", 64), ("2GiB", 32), ("64g", 1)):
        done = plan(*flags, f"--target-partition-bytes={target}")
        assert json.loads(done.stdout)["layouts"][0]["read_tasks"] == tasks


def test_the_tasks_of_a_read(root: str) -> None:
    exchange = two_steps(root)
    done = plan(root, "minTasks=2")
    heads, *tasks, summary = done.stdout.splitlines()
    assert done.returncode == 0 and heads.split() == [
        *("task", "partitions", "shard", "parts", "rows", "bytes", "requests"),
    ]
    assert [line.split()[:3] for line in tasks] == [["0", "0-1", "-"], ["1", "2-3", "-"]]
    assert summary.startswith("2 tasks read ") and "largest task" in summary
    answer = as_json("plan", root, "asOfStep=1")
    assert [task["partitions"] for task in answer["tasks"]] == [[0, 1, 2, 3]]
    assert (
        answer["bytes"]
        == answer["largest"]
        == sum(exchange.parts(as_of_step=1)["bytes"].to_pylist())
    )


def test_a_heavy_partition_has_a_warning(root: str) -> None:
    batch = pa.record_batch({"k": pa.array(range(5000), pa.int64())})
    write_batches(root, [batch], options=write_options(keys=("k",), partitions=1))
    alone = plan(root, "targetPartitionBytes=20k", "split=never").stdout
    assert "warning: partition 0 has 39." in alone and "split=hash divides it by keys" in alone
    divided = plan(root, "targetPartitionBytes=20k", "split=hash").stdout
    assert "2 of 2 by hash" in divided and "(some parts several times)" in divided
    assert "each of its 2 tasks reads all of it" in divided


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give ROOT, or --maps, --partitions and --bytes"),
        (["--maps=1", "--bytes=1g"], "give ROOT"),
        (["ROOT", "--maps=1"], "--maps belongs to an estimate"),
        (["ROOT", "split"], "expected NAME=VALUE"),
        (["ROOT", "storage.key=x"], "with --storage"),
        (["ROOT", "splits=hash"], "FFQ_UNKNOWN_OPTION"),
        (["ROOT", "split=always"], "must be one of never, hash, map"),
        (["ROOT/missing"], "FFQ_EXCHANGE_NOT_FOUND"),
    ],
)
def test_forms_that_cannot_be_are_refused(root: str, arguments: list[str], text: str) -> None:
    two_steps(root)
    done = plan(*(argument.replace("ROOT", root) for argument in arguments))
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bytes=nonsense"], "must be a size"),
        (["--bytes=100"], "FFQ_BAD_OPTION"),
        (["--partitions=10001"], "FFQ_BAD_OPTION"),
        (["--maps=0"], "--maps"),
        (["--layout=heap"], "--layout"),
        (["--put-price=-1"], "--put-price"),
        (["--tasks=3", "--target-partition-bytes=1g"], "not both"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], text: str) -> None:
    done = plan(*SHAPE, *arguments)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr
