"""Rules for the protocol machine: batch writes of one stream, their owners, re-runs and takeovers.

Runs of one batch have equal rows, as in a job that is run again, or different rows, as in a job
that numbers its batches anew. If a write succeeds, the log must hold its rows or equal rows of its
owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fault_truth as truth
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from layouts import write_options

from ffq_spark.errors import (
    ExchangeMismatch,
    FfqError,
    ReplayMismatch,
    Rows,
    StepGap,
    StreamOwned,
)
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.stream_write import BATCH_WRITES
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store

STREAM = "s"
REFUSALS = (ReplayMismatch, StepGap, StreamOwned)


@dataclass(frozen=True)
class Delivery:
    """A run of a batch; runs with the same `tag` have equal rows."""

    owner: str
    batch: int
    tag: int
    takeover: bool


class StreamRules:
    """Rules that write to a stream, and the invariants of the stream."""

    root: str

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: dict[int, Delivery] = {}
        self.refused: set[int] = set()

    def tag(self, query: int) -> int:
        """Return a query's value of the column `query`; equal runs of a batch share it."""
        return -self.deliveries[query].tag if query in self.deliveries else query

    @property
    def may_take_over(self) -> bool:
        """Whether a takeover was begun, which may refuse batches that are not claimed yet."""
        return any(delivery.takeover for delivery in self.deliveries.values())

    @precondition(lambda self: self.room)
    @rule(
        run=st.sampled_from(["", "a", "b"]),
        number=st.integers(0, 2),
        tag=st.integers(1, 2),
        takeover=st.booleans(),
    )
    def deliver(self: Any, run: str, number: int, tag: int, takeover: bool) -> None:
        query = self.new_query("append")
        delivery = Delivery(run or BATCH_WRITES, number, tag, takeover and run != "")
        self.deliveries[query] = delivery
        options = write_options(
            keys=("k",),
            partitions=2,
            query=query,
            stream_id=STREAM,
            batch=number,
            stream_run=run,
            takeover=delivery.takeover,
        )
        rows = pa.record_batch({"k": [0, 1, 2], "query": [-tag] * 3, "attempt": [1] * 3})

        def work(store: Store) -> StepRecord | None:
            return write_batches(self.root, [rows], options=options, store=store)

        self.start("deliver", work, query)

    def check_deliver(self: Any, running: Any, error: BaseException | None) -> None:
        query = running.query
        mine = self.deliveries[query]
        holder = truth.claims(self.root, STREAM).get((mine.owner, mine.batch))
        first = self.deliveries.get(holder) if holder != query else None
        if error is None and running.process.result is not None:
            self.check_order(running, running.process.result.step)
            assert holder == query == truth.log(self.root)[running.process.result.step - 1]
            return
        if error is None:
            assert first is not None and first.tag == mine.tag, "rows were dropped"
            assert holder in truth.committed(self.root)
            return
        assert isinstance(error, FfqError), repr(error)
        assert running.faults or isinstance(error, (*REFUSALS, ExchangeMismatch)), repr(error)
        if error.rows is not Rows.NEVER:
            assert running.faults
            assert error.rows is Rows.UNKNOWN or query in self.counted(), repr(error)
            return
        self.refused.add(query)
        if isinstance(error, ReplayMismatch):
            assert first is not None and first.tag != mine.tag
        else:
            assert query not in self.counted()
        if isinstance(error, StreamOwned):
            others = [d for d in self.deliveries.values() if d.owner != mine.owner]
            assert set(truth.owners(self.root, STREAM)) - {mine.owner} or any(
                other.takeover for other in others
            )

    @invariant()
    def a_batch_of_an_owner_is_one_step(self) -> None:
        batches = truth.batches(self.root, STREAM)
        assert len(set(batches)) == len(batches)

    @invariant()
    def what_was_refused_is_never_in_the_log(self) -> None:
        assert not self.refused & set(truth.log(self.root))
