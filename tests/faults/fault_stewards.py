"""Drivers with stewards, as rules of the protocol machine.

A driver's steward renews the lease and ends the writes that the driver has given up. It may die,
and be started again in time, too late or never. gc runs at the same time. The test sets the clock.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import fault_truth as truth
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from stepping import FakeTime

from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.abandon import end_abandoned
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.format import ids
from ffq_spark.format.records import QueryRecord
from ffq_spark.store import Store

LEASE_SECONDS = 3
WHICH = st.integers(0, 5)


@dataclass
class Driven:
    """The state of a write by a driver with a steward, as the test expects it."""

    record: QueryRecord
    is_begun: bool
    given_up_ms: int | None = None
    steward_lives: bool = True
    lapsed: bool = False


class StewardRules:
    """Rules for `ProtocolMachine`, which starts the processes and checks everything else."""

    def begin_stewards(self: Any) -> None:
        self.clock = FakeTime(ids.now_ms())
        self.patch = mock.patch.object(ids, "time", self.clock)
        self.patch.start()
        self.driven: dict[int, Driven] = {}

    def pick_driven(self: Any, which: int, *, begun: bool | None = None) -> Driven | None:
        known = [d for d in self.driven.values() if begun is None or d.is_begun == begun]
        return known[which % len(known)] if known else None

    @precondition(lambda self: len(self.driven) < 2)
    @rule(mode=st.sampled_from(["append", "replace"]), begins=st.booleans())
    def drive(self: Any, mode: str, begins: bool) -> None:
        """Start a write under a lease; its query never begins if a shuffle below it fails."""
        number = self.new_query(mode)
        initiator = f"driver-{number}"
        leases.renew(Store(self.root), initiator, LEASE_SECONDS)
        record = QueryRecord(number, initiator, 0, mode, self.clock.now, LEASE_SECONDS)
        self.driven[number] = Driven(record, is_begun=False)
        if begins:
            self.begin_driven(self.driven[number])

    def begin_driven(self: Any, driven: Driven) -> None:
        Ledger(Store(self.root)).ensure_format()
        Ledger(Store(self.root)).open(driven.record)
        driven.is_begun = True
        self.add_query(driven.record)

    @precondition(lambda self: self.driven)
    @rule(which=WHICH)
    def open_late(self: Any, which: int) -> None:
        """Let a task open its query, perhaps after the driver has given the query up."""
        driven = self.pick_driven(which, begun=False)
        if driven is not None:
            self.begin_driven(driven)

    @precondition(lambda self: self.driven)
    @rule(which=WHICH)
    def begin_again(self: Any, which: int) -> None:
        """Repeat a write, with its number, that was given up before its query began."""
        driven = self.pick_driven(which, begun=False)
        if driven is not None and driven.given_up_ms is not None:
            self.clock.now += 1
            record = driven.record
            again = QueryRecord(
                record.query, record.initiator, 0, record.mode, self.clock.now, LEASE_SECONDS
            )
            self.driven[record.query] = Driven(again, False, None, driven.steward_lives)
            self.begin_driven(self.driven[record.query])

    @precondition(lambda self: self.driven and self.room)
    @rule(which=WHICH)
    def give_up(self: Any, which: int) -> None:
        """Let Spark give up a write, even if a commit of the write is still under way."""
        driven = self.pick_driven(which)
        if driven.given_up_ms is None:
            driven.given_up_ms = self.clock.now
        if driven.steward_lives:
            self.end_given_up(driven)

    def end_given_up(self: Any, driven: Driven) -> Any:
        number, moment = driven.record.query, driven.given_up_ms
        return self.start(
            "end_given_up", lambda store: end_abandoned(store, number, moment), number
        )

    @precondition(lambda self: self.driven)
    @rule(which=WHICH)
    def lose_steward(self: Any, which: int) -> None:
        self.pick_driven(which).steward_lives = False

    @precondition(lambda self: self.driven and self.room)
    @rule(which=WHICH)
    def restart_steward(self: Any, which: int) -> None:
        """Start a new steward, which renews the lease and ends a query that was given up."""
        driven = self.pick_driven(which)
        driven.steward_lives = True
        self.renew(driven)
        if driven.given_up_ms is not None:
            self.end_given_up(driven)

    def renew(self: Any, driven: Driven) -> None:
        leases.renew(Store(self.root), driven.record.initiator, LEASE_SECONDS)

    @precondition(lambda self: self.driven)
    @rule(beats=st.integers(1, 4))
    def pass_time(self: Any, beats: int) -> None:
        """Advance the clock; a living steward renews three times in a lease, a dead one never."""
        for _ in range(beats):
            self.clock.now += LEASE_SECONDS * 1000 // 3
            for driven in self.driven.values():
                driven.lapsed = driven.lapsed or not self.is_leased(driven)
                if driven.steward_lives:
                    self.renew(driven)

    def is_leased(self: Any, driven: Driven) -> bool:
        """Return whether the lease on storage is in force, computed without the code under test."""
        lease = Path(self.root, "_ffq", "leases", f"{driven.record.initiator}.json")
        renewed = json.loads(lease.read_bytes())["renewed_at_ms"] if lease.exists() else 0
        since = max(renewed, driven.record.created_at_ms)
        return self.clock.now < since + LEASE_SECONDS * 1000

    @precondition(lambda self: self.driven and self.room)
    @rule(ttl_ms=st.sampled_from([0, 10_000]))
    def collect_garbage(self: Any, ttl_ms: int) -> None:
        self.start("gc", lambda store: collect_garbage(store, ttl_ms=ttl_ms).problems)

    @precondition(lambda self: len(self.driven) < 2)
    @rule(dies=st.booleans(), away=st.integers(1, 3), restarts=st.booleans())
    def gc_beside_a_long_write(self: Any, dies: bool, away: int, restarts: bool) -> None:
        """Run gc after the steward was away for a third, two thirds or all of the lease."""
        self.drive("append", True)
        driven = list(self.driven.values())[-1]
        self.pass_time(3)
        driven.steward_lives = not dies
        self.pass_time(away)
        if restarts:
            driven.steward_lives = True
            self.renew(driven)
        gc_run = self.start("gc", lambda store: collect_garbage(store, ttl_ms=0).problems)
        gc_run.process.advance_to("the end")
        self.check_end(gc_run)

    def check_end_given_up(self: Any, running: Any, error: BaseException | None) -> None:
        if not self.is_excused(running, error) and running.process.result is not None:
            assert running.query in truth.outcomes(self.root)

    def check_gc(self: Any, running: Any, error: BaseException | None) -> None:
        if not self.is_excused(running, error) and not running.faults:
            assert running.process.result == []

    @invariant()
    def only_lapsed_queries_are_lost_and_only_given_up_ones_are_aborted(self: Any) -> None:
        aborts = {running.query for running in self.all if running.kind == "abort"}
        # A commit aborts its query itself if a storage fault or a twin leaves the result unknown.
        commits = Counter(running.query for running in self.all if running.kind == "commit")
        aborts |= {query for query, count in commits.items() if count > 1}
        aborts |= {running.query for running in self.all if running.faults}
        for number, data in truth.outcomes(self.root).items():
            driven = self.driven.get(number)
            outcome = json.loads(data)["outcome"]
            if driven is not None and outcome == "LOST":
                assert driven.lapsed, "a query was fenced under its lease"
            if driven is not None and outcome == "ABORTED" and number not in aborts:
                assert driven.given_up_ms is not None, "a query that may still commit was aborted"

    def end_stewards(self: Any) -> None:
        """End every query that was given up, and check that none stays open."""
        for number, driven in self.driven.items():
            if driven.given_up_ms is not None:
                self.end_given_up(driven).process.finish()
                assert not driven.is_begun or number in truth.outcomes(self.root)
