"""Action bodies decode strictly, and each is described."""

from __future__ import annotations

import pytest

from ffq_spark.errors import BadRequest
from ffq_spark.service.wire import actions
from ffq_spark.service.wire.messages import Message

BODIES = [
    value
    for value in vars(actions).values()
    if isinstance(value, type) and issubclass(value, Message) and value is not Message
]
VALUES = {"exchange": b'"a"', "query": b"5", "schema": b'""', "map_task": b"0"}
VALUES |= {"map_tasks": b"1", "attempt": b"1"}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_body_needs_its_fields_and_no_others(body: type[Message]) -> None:
    assert body.__doc__
    fields = [b'"%s": %s' % (name.encode(), VALUES[name]) for name in _required(body)]
    assert isinstance(body.decode(b"{" + b", ".join(fields) + b"}"), body)
    for number in range(len(fields)):
        with pytest.raises(BadRequest, match="needs"):
            body.decode(b"{" + b", ".join(fields[:number] + fields[number + 1 :]) + b"}")
    with pytest.raises(BadRequest, match="has no field"):
        body.decode(b"{" + b", ".join([*fields, b'"more": 1']) + b"}")


def _required(body: type[Message]) -> list[str]:
    from dataclasses import MISSING, fields

    return [f.name for f in fields(body) if f.default is f.default_factory is MISSING]
