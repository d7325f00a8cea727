"""A commit whose answer is lost, and the calls of a write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ffq_spark import errors
from ffq_spark.errors import CommitUnknown, FfqError, Rows, Unavailable
from ffq_spark.service.client.channel import Channel
from ffq_spark.service.client.retries import Retries
from ffq_spark.service.client.write import RemoteWrite

SCHEMA = pa.schema([("id", pa.int64())])


class Sent:
    """A channel that keeps what is sent, and may lose the answers."""

    def __init__(self, answers: bool = True) -> None:
        self._answers = answers
        self.sent: list[tuple[str, Any]] = []

    def retries(self) -> Retries:
        return Retries(0)

    def action(self, name: str, body: Any, retries: Any = None) -> dict[str, Any]:
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


class Failing:
    """A client whose calls end with these errors in turn."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    def do_action(self, action: Any, options: Any) -> Any:
        raise flight.FlightInternalError(self._texts.pop(0))


def error_of_commit(*texts: str) -> FfqError:
    write = RemoteWrite(Channel(Failing(*texts), None, retries=1), "made", 7, SCHEMA)
    with pytest.raises(FfqError) as caught:
        write.commit(1)
    return caught.value


# These say how the query has ended, whichever try of the commit ended it.
ENDS = ("CANCELED", "FENCED", "LOST", "QUERY_ENDED", "REPLAY_MISMATCH")


@pytest.mark.parametrize("kind", errors.every_error(), ids=lambda kind: kind.__name__)
def test_after_a_lost_answer_only_the_end_of_the_query_is_certain(kind: type[FfqError]) -> None:
    """The first try may have committed before its answer was lost."""
    text = str(kind("why"))
    first = error_of_commit(text, text)
    assert type(first) is (CommitUnknown if kind is Unavailable else kind)
    later = error_of_commit("the connection was lost", text)
    if kind.code.removeprefix("FFQ_") in ENDS or kind.rows is not Rows.NEVER:
        assert type(later) is kind
    else:
        assert type(later) is CommitUnknown and "query 7: why" in str(later)


@pytest.mark.parametrize("code", ["FFQ_ERROR", "FFQ_OF_THE_FUTURE"])
def test_an_unexpected_failure_of_a_commit_is_unknown(code: str) -> None:
    error = error_of_commit(f"[{code}] see the log")
    assert type(error) is CommitUnknown and "see the log" in str(error)
    assert code == "FFQ_ERROR" or code in str(error)
