"""A commit whose answer is lost, and the calls of a write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ffq_spark.errors import CommitUnknown, Unavailable
from ffq_spark.service.client.write import RemoteWrite

SCHEMA = pa.schema([("id", pa.int64())])


class Sent:
    """A channel that keeps what is sent, and may lose the answers."""

    def __init__(self, answers: bool = True) -> None:
        self._answers = answers
        self.sent: list[tuple[str, Any]] = []

    def action(self, name: str, body: Any) -> dict[str, Any]:
        self.sent.append((name, body))
        if not self._answers:
            raise Unavailable("the connection was lost")
        return {}


def test_a_commit_without_an_answer_is_unknown_and_names_its_query() -> None:
    write = RemoteWrite(Sent(answers=False), "made", 7, SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(CommitUnknown, match="query 7: the connection was lost"):
        write.commit(1)
    with pytest.raises(Unavailable):
        write.abort()


def test_each_call_names_the_exchange_and_the_query() -> None:
    channel = Sent()
    write = RemoteWrite(channel, "made", 7, SCHEMA)  # type: ignore[arg-type]
    write.register(2, 3)
    write.heartbeat()
    write.commit(4)
    write.abort("why")
    write_of = {"exchange": "made", "query": 7}
    assert channel.sent == [
        ("RegisterMapOutput", {**write_of, "map_task": 2, "attempt": 3}),
        ("Heartbeat", write_of),
        ("CommitQuery", {**write_of, "map_tasks": 4}),
        ("AbortQuery", {**write_of, "reason": "why"}),
    ]
