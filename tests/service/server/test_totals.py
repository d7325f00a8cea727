"""Totals lose nothing that threads count at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ffq_spark.service.server.totals import ServiceTotals


def test_threads_count_at_once() -> None:
    totals = ServiceTotals()

    def count(number: int) -> None:
        for _ in range(500):
            totals.count_call("do_get", "OK" if number % 2 else "FFQ_ERROR")
            totals.count_sent(rows=1, size=8)
            totals.count_received(rows=2, size=16)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    assert totals.calls == {("do_get", "OK"): 2_000, ("do_get", "FFQ_ERROR"): 2_000}
    assert (totals.rows_sent, totals.bytes_sent) == (4_000, 32_000)
    assert (totals.rows_received, totals.bytes_received) == (8_000, 64_000)
