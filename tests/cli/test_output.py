"""Output of values: tables for people, JSON for machines."""

from __future__ import annotations

import json

import pytest

from ffq_spark.cli.output import Output, human_bytes, human_time

CELLS = [None, (1, 2), [], "[bold]x"]


def test_a_table_shows_every_kind_of_value_as_plain_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output(json=False).table(["a", "b", "c", "d"], [CELLS])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["a", "b", "c", "d"]
    assert row.split("  ") and row.replace("1, 2", "1,2").split() == ["-", "1,2", "-", "[bold]x"]


def test_a_table_is_a_list_of_objects_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).table(["a", "b"], [(1, None), ("x", [2])])
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "b": None}, {"a": "x", "b": [2]}]


def test_a_record_is_shown_with_spaces_in_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).record({"paused_at": 3})
    assert capsys.readouterr().out.split() == ["paused", "at", "3"]
    Output(json=True).record({"paused_at": 3})
    assert json.loads(capsys.readouterr().out) == {"paused_at": 3}


def test_lines_are_for_people_and_items_are_one_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for as_json, expected in ((False, "[done]\nx 1\n"), (True, '{"a": "x", "b": 1}\n')):
        output = Output(json=as_json)
        output.line("[done]")
        output.item({"a": "x", "b": 1})
        assert capsys.readouterr().out == expected


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(json=False)
    with output.progress("verifying") as progress:
        progress(1, 2)
    with output.counter("attempts") as counted:
        counted(1)
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_have_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert human_bytes(size) == text


def test_times_are_in_utc() -> None:
    assert human_time(86_399_999) == "1970-01-01 23:59:59Z"
