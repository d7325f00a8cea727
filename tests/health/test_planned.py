"""The settings of a session that has yet to start."""

from __future__ import annotations

import pytest

from ffq_spark import conf
from ffq_spark.conf import SOCKETS
from ffq_spark.health.planned import planned


def test_the_environment_decides_about_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SOCKETS in conf.fast({})
    monkeypatch.setenv("PYSPARK_UDS_MODE", "false")
    assert SOCKETS not in conf.fast({})
    assert planned({}).settings[SOCKETS] == "false"
