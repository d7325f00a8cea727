"""Options of a service, and the command `ffq-spark serve`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from service_scene import rows, serving, write

import ffq_spark as ffq
from ffq_spark.errors import (
    FfqError,
    Unavailable,
)


@pytest.mark.parametrize(
    "options",
    [
        {"tls_certificate": "c"},
        {"tls_key": "k"},
        {"tls_client_ca": "a"},
        {"tls_certificate": "/none/c", "tls_key": "/none/k"},
        {"tokens": "/none/t"},
        {"max_reader": 1},
    ],
    ids=str,
)
def test_options_that_cannot_be_right_are_refused(options: dict[str, Any], root: str) -> None:
    with pytest.raises(FfqError) as caught:
        ffq.serve({"x": root}, port=0, **options)
    assert caught.value.error_class.value == "config"


def test_the_command_serves_until_sigterm_and_drains(lake: Path) -> None:
    with serving(str(lake / "lake"), f"second={lake / 'other'}") as server:
        connection = ffq.connect(server.url)
        assert connection.exchanges() == ["lake/a", "lake/b", "second"]
        assert connection.exchange("second").read().read_all().num_rows == 50
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        with pytest.raises(Unavailable):
            ffq.connect(server.url, retries=0).exchanges()


def test_calls_that_do_not_end_are_cut_off(root: str) -> None:
    write(root, rows(0, 300_000, width=100), partitions=1)
    flags = ["--drain-seconds", "0", "--server-credits", "1m", "--max-readers", "1"]
    with serving(f"x={root}", *flags) as server:
        reader = ffq.connect(server.url, retries=0).exchange("x").read()
        reader.read_next_batch()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 1
        with pytest.raises(Unavailable):
            reader.read_all()
