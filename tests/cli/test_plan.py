"""ffq-spark plan: both layouts side by side, one layout, and invalid input."""

from __future__ import annotations

import json
import subprocess

import pytest
from command_line import run


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
