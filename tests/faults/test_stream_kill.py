"""A stream's writer is killed at every change of storage; the repeated batch counts once."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Place
from fault_crashing import CrashingStore, CrashPoint, Moment
from fault_processes import run
from fault_rows import batch_of, exchange_at, rows_of, store_at, visible
from layouts import write_options

from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store


def deliver(place: Place, number: int, store: Store | None = None) -> StepRecord | None:
    options = write_options(keys=("k",), partitions=3, stream_id="s", batch=number)
    rows = [batch_of(number)]
    return write_batches(place.root, rows, options=options, store=store or store_at(place))


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_batch_killed_anywhere_and_run_again_is_one_step(
    moment: Moment, before: int, tmp_path: Path
) -> None:
    change, reached = 0, True
    while reached:
        change += 1
        place = Place(str(tmp_path / f"{change}"))
        for number in range(before):
            deliver(place, number)

        def killed(place: Place = place, change: int = change) -> bool:
            point = CrashPoint(change, moment)
            deliver(place, before, CrashingStore(place.root, place.storage_options, point))
            return True

        reached = run(killed) is None
        # Spark repeats the batch and then runs the next: no batch may be missing or double.
        deliver(place, before)
        assert visible(place) == rows_of(range(before + 1))
        deliver(place, before + 1)
        assert visible(place) == rows_of(range(before + 2))
        steps = exchange_at(place).steps()
        assert [step.body.stream.batch for step in steps if step.body.stream] == list(
            range(before + 2)
        )
    assert change > 10


def test_a_reader_between_publishes_the_first_run(tmp_path: Path) -> None:
    """After a kill behind the outcome, a reader creates the step; the re-run is a duplicate."""
    place = Place(str(tmp_path / "root"))

    def killed() -> None:
        point = CrashPoint(".outcome.json", "after")
        deliver(place, 0, CrashingStore(place.root, place.storage_options, point))

    assert run(killed) is None
    assert visible(place) == rows_of([0])
    assert deliver(place, 0) is None
    assert visible(place) == rows_of([0])
