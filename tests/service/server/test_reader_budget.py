"""Readers share the credits equally, and four messages and a part fit into each share."""

from __future__ import annotations

import pytest

from ffq_spark.options import ServeOptions
from ffq_spark.service.server.reader_budget import ReaderBudget


@pytest.mark.parametrize("credits", [1 << 10, 64 << 20, 1 << 30])
@pytest.mark.parametrize("readers", [1, 64])
def test_all_readers_together_stay_within_the_credits(credits: int, readers: int) -> None:
    options = ServeOptions(server_credits=credits, max_readers=readers)
    budget = ReaderBudget.of(options)
    held = 2 * budget.part_bytes + 4 * budget.message_bytes
    assert held * readers <= max(credits, 6 * readers)
    assert budget.message_bytes <= options.max_message_bytes


def test_a_budget_is_never_nothing() -> None:
    budget = ReaderBudget.of(ServeOptions(server_credits=1, max_readers=64))
    assert (budget.part_bytes, budget.message_bytes) == (1, 1)
