"""Claims decide between committed queries, and every process gets the same answer."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from ffq_spark.errors import DuplicateBatch, ExchangeMismatch, StreamOwned
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.claims import Claim, claim_state, create_claims
from ffq_spark.exchange.ledger.sealing import seal
from ffq_spark.format.records import (
    ExchangeRecord,
    Outcome,
    OutcomeRecord,
    OwnerRecord,
    QueryRecord,
    StreamBatch,
)
from ffq_spark.store import Store

EXCHANGE = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ("k",), 4)


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


def committed(
    query: int, exchange: ExchangeRecord | None = None, batch: int | None = None
) -> OutcomeRecord:
    body, _ = seal(QueryRecord(query, "app-1", 0, "append", 0), [], [])
    if batch is not None:
        body = replace(body, stream=StreamBatch("nightly", 1, batch, 0, 0, 0))
    return OutcomeRecord(
        query, Outcome.COMMITTED, 0, f"nonce {query}", step=body, exchange=exchange
    )


def test_a_query_that_claims_nothing_has_won(store: Store) -> None:
    create_claims(store, committed(1))
    assert claim_state(store, committed(1)) is Claim.WON


@pytest.mark.parametrize("partitions", [4, 8])
def test_the_first_write_decides_about_the_exchange(store: Store, partitions: int) -> None:
    first = committed(1, EXCHANGE)
    second = committed(2, replace(EXCHANGE, partitions=partitions))
    assert claim_state(store, first) is Claim.OPEN
    for _ in range(2):
        create_claims(store, first)
    assert claim_state(store, first) is Claim.WON
    if partitions == EXCHANGE.partitions:
        create_claims(store, second)
        assert claim_state(store, second) is Claim.WON
        return
    for _ in range(2):
        with pytest.raises(ExchangeMismatch, match="partitions"):
            create_claims(store, second)
    assert claim_state(store, second) is Claim.LOST


def test_a_batch_belongs_to_the_query_that_claims_it_first(store: Store) -> None:
    first, second, next_batch = committed(1, batch=5), committed(2, batch=5), committed(3, batch=6)
    assert claim_state(store, second) is Claim.OPEN
    for _ in range(2):
        create_claims(store, first)
    with pytest.raises(DuplicateBatch, match="batch 5"):
        create_claims(store, second)
    create_claims(store, next_batch)
    states = [claim_state(store, outcome) for outcome in (first, second, next_batch)]
    assert states == [Claim.WON, Claim.LOST, Claim.WON]


def test_the_first_batch_of_an_owner_claims_its_epoch(store: Store) -> None:
    owners = [OwnerRecord("nightly", 1, owner, 5, at_ms=0) for owner in ("a", "b")]
    first, second = (
        replace(committed(query, batch=5), owner=owner) for query, owner in enumerate(owners, 1)
    )
    assert claim_state(store, first) is Claim.OPEN
    for _ in range(2):
        create_claims(store, first)
        with pytest.raises(StreamOwned, match="belongs to a, not to b"):
            create_claims(store, second)
    standings = [claim_state(store, outcome) for outcome in (first, second)]
    assert standings == [Claim.WON, Claim.LOST]


def test_a_batch_is_lost_to_the_seal_of_a_takeover(store: Store) -> None:
    owners = [OwnerRecord("nightly", number, owner, 5, 0) for number, owner in ((1, "a"), (2, "b"))]
    stream_records.begin_epoch(store, owners[0])
    late = committed(1, batch=5)
    stream_records.begin_epoch(store, owners[1])
    assert claim_state(store, late) is Claim.LOST
    for _ in range(2):
        with pytest.raises(StreamOwned, match="was taken over before batch 5"):
            create_claims(store, late)


def test_a_batch_is_not_claimed_by_a_query_that_lost_the_exchange(store: Store) -> None:
    create_claims(store, committed(1, EXCHANGE))
    with pytest.raises(ExchangeMismatch):
        create_claims(store, committed(2, replace(EXCHANGE, partitions=8), batch=5))
    create_claims(store, committed(3, batch=5))
