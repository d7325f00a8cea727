"""The walks of docs/architecture.md are made from a trace, which also finds calls up a layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from walks.page import section
from walks.trace import Call, Function, read_calls
from walks.walk import generic, package_of, package_ranks, upward_calls, walk

from ffq_spark.exchange.ledger.ledger import Ledger

ROOT = Path(__file__).parents[2]
COMMIT = Function("ffq_spark.spark.writer", "ExchangeWriter.commit")
WRITE = Function("ffq_spark.spark.writer", "ExchangeWriter.write")
LEDGER = Function("ffq_spark.exchange.ledger.ledger", "Ledger.begin")
PRIVATE = Function("ffq_spark.exchange.ledger.ledger", "Ledger._founding")
CREATE = Function("ffq_spark.store.store", "Store.create_once")


def call(
    function: Function, *callers: Function, path: str = "", is_generator: bool = False
) -> Call:
    return Call(0, is_generator, path, function, callers)


CALLS = [
    call(COMMIT),
    call(LEDGER, COMMIT),
    call(PRIVATE, LEDGER, COMMIT),
    call(CREATE, PRIVATE, LEDGER, COMMIT, path="_ffq/queries/3764416710536901045.json"),
    call(LEDGER, COMMIT),
]


def test_a_walk_lists_what_other_modules_enter_and_what_it_changes_on_storage() -> None:
    stations = walk(CALLS)
    assert [station.function for station in stations] == [COMMIT, LEDGER]
    assert [station.caller for station in stations] == [None, COMMIT]
    assert stations[1].effects == ("create `_ffq/queries/<query>.json`",)
    assert stations[1].summary and (Ledger.begin.__doc__ or "").startswith(stations[1].summary)


def test_what_another_walk_shows_below_a_folded_function_is_left_out() -> None:
    commit = ("ExchangeWriter.commit",)
    assert [s.function for s in walk(CALLS, {COMMIT, LEDGER}, commit)] == [COMMIT]
    assert [s.function for s in walk(CALLS, {COMMIT}, commit)] == [COMMIT, LEDGER]


def test_functions_stand_below_their_callers_in_the_order_of_their_first_calls() -> None:
    late = Function("ffq_spark.exchange.ledger.cancel", "refuse_canceled")
    calls = [call(COMMIT), call(WRITE), call(LEDGER, WRITE), call(late, COMMIT)]
    stations = walk(calls)
    assert [station.function for station in stations] == [COMMIT, late, WRITE, LEDGER]
    assert "&emsp;`exchange.ledger.cancel` **refuse_canceled**" in section("write", stations, 4)


def test_the_name_of_the_source_is_listed_and_not_drawn() -> None:
    name = Function("ffq_spark.spark.source", "FfqShuffleSource.name")
    text = section("write", walk([call(name), *CALLS]), 4)
    assert "Spark->>spark: FfqShuffleSource.name" not in text
    assert "| `spark.source` **FfqShuffleSource.name** | Return the name" in text


def test_a_section_draws_each_change_of_package() -> None:
    text = section("write", walk(CALLS), 3)
    assert "Spark->>spark: ExchangeWriter.commit" in text
    assert "spark->>exchange.ledger: Ledger.begin" in text
    assert "&emsp;`exchange.ledger.ledger` **Ledger.begin**" in text


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("ffq_spark.exchange.write.buffer", "exchange.write"),
        ("ffq_spark.exchange.exchange", "exchange"),
        ("ffq_spark.spark.writer", "spark"),
        ("ffq_spark.conf", "conf"),
    ],
)
def test_a_walk_names_packages_within_the_exchange_and_top_packages_elsewhere(
    module: str, package: str
) -> None:
    assert package_of(module) == package


def test_a_call_to_a_package_above_is_found() -> None:
    ranks = package_ranks(ROOT / "setup.cfg")
    down, up = call(LEDGER, COMMIT), call(COMMIT, LEDGER)
    pulled = call(COMMIT, LEDGER, is_generator=True)
    assert upward_calls([down, up, pulled], ranks) == [up]


def test_paths_are_named_by_what_their_numbers_mean() -> None:
    part = "shuffle/3764416710536901045/0/3/17/part-5.ipc"
    assert generic(part) == "shuffle/<query>/<stage>/<map>/<attempt>/part-<reduce>.ipc"
    assert generic("_ffq/steps/00000000000000000001.json") == "_ffq/steps/<step>.json"
    batch = "_ffq/streams/9d777490-8d2f/000001/00000000000000000000.json"
    assert generic(batch) == "_ffq/streams/<stream>/<epoch>/<batch>.json"


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    names = [f"{f.module}:{f.name}" for f in (CREATE, LEDGER)]
    (tmp_path / "1.tsv").write_text("\t".join(["7", "function", "a.json", *names]) + "\n")
    assert list(read_calls(tmp_path)) == [Call(7, False, "a.json", CREATE, (LEDGER,))]
