"""Uploaded batches are validated in full before anything computes with them."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_scene import Caller, ServerProcess, serving, until

import ffq_spark as ffq
from ffq_spark.errors import BadRequest, ExchangeMismatch, Unavailable
from ffq_spark.exchange.write import attempt_writer
from ffq_spark.exchange.write.buffer import PartitionBuffer
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.wire.messages import Attempt, Done

ROWS = 1_000
KEYS = pa.record_batch({"k": [1, 2]})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Run a writable server in a process of its own, which wrong bytes may end."""
    lake = tmp_path_factory.mktemp("lake")
    with serving(f"lake={lake}", "--writable") as process:
        yield process


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[Connection]:
    if server.process.poll() is not None:
        server.start()
    with ffq.connect(server.url, retries=0) as connected:
        yield connected


def send(
    connection: Connection, exchange: str, query: int, make: Callable[[], pa.RecordBatch]
) -> dict[str, Any]:
    """Upload a batch without the client of ffq_spark, which would compute with its values.

    The batch is no argument, because pytest shows the values of arguments.
    """
    batch = make()
    command = Attempt(exchange, query, 0).encode()

    def upload() -> dict[str, Any]:
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, answers = connection.client.do_put(descriptor, batch.schema)
        try:
            writer.write_batch(batch)
            writer.write_metadata(Done(batch.num_rows).encode())
            writer.done_writing()
            answer = answers.read()
        finally:
            writer.close()
        summary: dict[str, Any] = json.loads(answer.to_pybytes())
        return summary

    return connection.call(upload)


def messages_of(batch: pa.RecordBatch, **options: Any) -> list[tuple[bytes, bytes]]:
    """Return the headers and bodies of the IPC messages of a stream with one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_batch(batch)
    stream = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [
        (message.metadata.to_pybytes(), message.body.to_pybytes() if message.body else b"")
        for message in stream
    ]


def port_of(server: ServerProcess) -> int:
    return int(server.url.rpartition(":")[2])


def numbers(*changed: tuple[int, int], count: int = ROWS) -> Any:
    """Return the offsets of values of 4 bytes, with some of them changed."""
    offsets = np.arange(count + 1, dtype=np.int32) * 4
    for position, offset in changed:
        offsets[position] = offset
    return pa.py_buffer(offsets)


def texts(offsets: pa.Buffer, count: int = ROWS, valid: pa.Buffer | None = None) -> pa.Array:
    data = pa.py_buffer(b"abcd" * count)
    return pa.Array.from_buffers(pa.string(), count, [valid, offsets, data])


def far_text() -> pa.Array:
    return texts(numbers((500, 1 << 30), (501, (1 << 30) + (1 << 29))))


def text_behind_a_null() -> pa.Array:
    """Return a column whose second offset is beyond the data; its row is null."""
    return texts(numbers((2, 200_000), count=5), 5, pa.py_buffer(bytes([0b11101])))


def far_item() -> pa.Array:
    lists = [None, numbers((300, 1 << 30))]
    items = pa.array(np.arange(4 * ROWS))
    return pa.Array.from_buffers(pa.list_(pa.int64()), ROWS, lists, children=[items])


def far_text_in_a_list() -> pa.Array:
    inner = texts(numbers((7, 1 << 28), count=4 * ROWS), 4 * ROWS)
    return pa.Array.from_buffers(pa.list_(pa.string()), ROWS, [None, numbers()], children=[inner])


def far_index() -> pa.Array:
    indices = np.zeros(ROWS, np.int32)
    indices[400] = 1 << 24
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(["one"]), safe=False)


def far_text_in_a_dictionary() -> pa.Array:
    values = texts(numbers((2, 1 << 28), count=5), 5)
    indices = pa.array(np.arange(ROWS, dtype=np.int32) % 5)
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


def no_text() -> pa.Array:
    return pa.array([b"\xff"] * ROWS, pa.binary()).view(pa.string())


WRONG = [
    *(far_text, text_behind_a_null, far_item, far_text_in_a_list, far_index),
    *(far_text_in_a_dictionary, no_text),
]


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_buffers_that_contradict_their_column_are_refused(
    server: ServerProcess, connection: Connection, make: Callable[[], pa.Array], partitions: int
) -> None:
    name = f"lake/{make.__name__}-{partitions}"
    schema = pa.schema([("k", pa.int64()), ("v", make().type)])
    step = connection.exchange(name).begin(schema, keys="k", partitions=partitions)

    def batch() -> pa.RecordBatch:
        values = make()
        return pa.record_batch([pa.array(np.arange(len(values))), values], schema)

    with pytest.raises(BadRequest, match="not valid Arrow data"):
        send(connection, name, step.query, batch)
    assert server.process.poll() is None


def put_messages(
    server: ServerProcess, connection: Connection, messages: Any, metadata: bytes
) -> tuple[grpc.StatusCode, str]:
    """Upload messages as they are to a new query on an exchange with the column k."""
    step = connection.exchange("lake/bytes").begin(KEYS.schema, partitions=1)
    command = Attempt("lake/bytes", step.query, 0).encode()
    with Caller(port_of(server)) as caller:
        return caller.do_put(command, messages, metadata)


def test_a_buffer_that_is_too_short_is_refused(
    server: ServerProcess, connection: Connection
) -> None:
    """Send the bytes themselves, because pyarrow does not make such an array."""
    narrow = pa.record_batch({"k": pa.array([1, 2], pa.int8())})
    messages = [messages_of(KEYS)[0], messages_of(narrow)[1]]
    status, text = put_messages(server, connection, messages, Done(2).encode())
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "[FFQ_BAD_REQUEST] not valid Arrow data" in text
    assert server.process.poll() is None


def test_bytes_that_are_not_arrow_are_refused(
    server: ServerProcess, connection: Connection
) -> None:
    messages = [messages_of(KEYS)[0], (b"\xff" * 100, b"")]
    status, text = put_messages(server, connection, messages, Done(2).encode())
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "[FFQ_BAD_REQUEST] the upload is not an Arrow stream" in text


def test_a_name_that_is_not_text_is_refused(server: ServerProcess, connection: Connection) -> None:
    named = messages_of(pa.record_batch({"name": [1, 2]}))
    messages = [(named[0][0].replace(b"name", b"nam\xff"), b""), named[1]]
    status, text = put_messages(server, connection, messages, Done(2).encode())
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "[FFQ_BAD_REQUEST] a name in the upload is not valid UTF-8" in text


def test_metadata_that_is_too_large_is_refused(
    server: ServerProcess, connection: Connection
) -> None:
    metadata = Done(2).encode() + b" " * (1 << 20)
    status, text = put_messages(server, connection, messages_of(KEYS), metadata)
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "exceeds the limit of 1048576 (option maxRequestBytes)" in text


MIXED = pa.record_batch(
    {
        "k": [1, 2, None, 4],
        "text": ["a", None, "ccc", ""],
        "list": [[1], None, [], [2, 3]],
        "code": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "struct": [{"a": "q", "b": [["z"]]}, None, {"a": None, "b": []}, {"a": "", "b": None}],
        "map": pa.array([[("a", 1)], None, [], []], pa.map_(pa.string(), pa.int64())),
    }
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), compression=st.sampled_from([None, "lz4", "zstd"]))
def test_no_bytes_of_an_upload_end_the_server(
    server: ServerProcess, connection: Connection, data: st.DataObject, compression: str | None
) -> None:
    schema, *others = messages_of(MIXED, compression=compression)
    changed = [(bytearray(header), bytearray(body)) for header, body in others]
    words = st.sampled_from([0, 1, 5, 127, 1 << 16, (1 << 31) - 1, (1 << 32) - 1])
    for _ in range(data.draw(st.integers(1, 4))):
        piece = data.draw(st.sampled_from([p for message in changed for p in message if p]))
        at = 4 * data.draw(st.integers(0, len(piece) // 4 - 1))
        piece[at : at + 4] = data.draw(words).to_bytes(4, "little")
    step = connection.exchange("lake/mixed").begin(MIXED.schema, keys="k", partitions=3)
    with Caller(port_of(server)) as caller:
        messages = [schema, *((bytes(header), bytes(body)) for header, body in changed)]
        command = Attempt("lake/mixed", step.query, 0).encode()
        status, text = caller.do_put(command, messages, Done(4).encode())
    assert status is grpc.StatusCode.OK or text.startswith("[FFQ_BAD_REQUEST]"), text
    assert server.process.poll() is None


def no_values(kind: pa.DataType) -> pa.Array:
    """Return 20 million nulls, which take no byte until they have a type."""
    nulls = pa.nulls(20_000_000)
    if kind == pa.int64():
        return nulls
    return pa.ListArray.from_arrays(pa.array([0, len(nulls)], pa.int32()), nulls)


def one_text(kind: pa.DataType) -> pa.Array:
    """Return 100 times the same text of a MiB."""
    return pa.DictionaryArray.from_arrays(np.zeros(100, np.int8), ["x" * (1 << 20)])


def one_view(kind: pa.DataType) -> pa.Array:
    text = pa.array(["x" * (1 << 20)], pa.string_view())
    view, data = text.buffers()[1:]
    return pa.Array.from_buffers(
        pa.string_view(), 100, [None, pa.py_buffer(bytes(view) * 100), data]
    )


GROWING = [
    (no_values, pa.int64()),
    (no_values, pa.list_(pa.int64())),
    (one_text, pa.string()),
    (one_view, pa.string()),
]


@pytest.mark.parametrize(
    ("make", "kind"), GROWING, ids=["no values", "no lists", "one text", "one view"]
)
def test_batches_that_grow_beyond_the_limit_are_refused(
    server: ServerProcess,
    connection: Connection,
    make: Callable[[pa.DataType], pa.Array],
    kind: pa.DataType,
) -> None:
    """The limit holds for the batch as the server stores it, not for its bytes on the wire."""
    name = f"lake/{make.__name__}-{kind.id}"
    step = connection.exchange(name).begin(pa.schema([("v", kind)]), partitions=1)
    with pytest.raises(BadRequest, match="exceeds the limit of 67108864"):
        send(connection, name, step.query, lambda: pa.record_batch({"v": make(kind)}))
    assert server.process.poll() is None


def test_an_upload_that_sends_nothing_loses_its_slot_and_its_lease(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers: list[Any] = []

    def make_buffer(job: Any) -> PartitionBuffer:
        buffer = PartitionBuffer(job)
        buffers.append(weakref.ref(buffer))
        return buffer

    monkeypatch.setattr(attempt_writer, "PartitionBuffer", make_buffer)
    options = {"port": 0, "writable": True, "max_writers": 1, "max_wait": 30, "drain_seconds": 0}
    batch = pa.record_batch({"k": [1, 2]})
    exchange = ffq.Exchange(root)
    with ffq.serve({"x": root}, max_idle=1, lease_seconds=1, **options) as service:
        connection = ffq.connect(service.url, retries=0)
        idle, other = (connection.exchange("x").begin(batch.schema) for _ in range(2))
        descriptor = flight.FlightDescriptor.for_command(Attempt("x", idle.query, 0).encode())
        writer, _ = connection.client.do_put(descriptor, batch.schema)
        writer.write_batch(batch)
        until(lambda: connection.health()["writers"] == 1)
        # The other upload waits until the server gives the idle one up.
        assert other.put(0, [batch])["rows"] == 2
        assert other.commit(1)["rows"] == 2
        until(lambda: exchange.gc(ttl=0).fenced == [idle.query])
        gc.collect()
        assert buffers[0]() is None
        with pytest.raises(Unavailable, match=r"nothing arrived for 1 s \(option maxIdle\)"):
            connection.call(lambda: (writer.write_batch(batch), writer.close()))
        assert connection.health()["calls"] == 1


def test_an_upload_that_is_refused_ends_at_once(root: str) -> None:
    """The server does not wait for the next message of a caller who may send none."""
    batch = pa.record_batch({"k": [1, 2]})
    with ffq.serve({"x": root}, port=0, writable=True, drain_seconds=0) as service:
        connection = ffq.connect(service.url, retries=0)
        step = connection.exchange("x").begin(pa.schema([("other", pa.int64())]))
        descriptor = flight.FlightDescriptor.for_command(Attempt("x", step.query, 0).encode())
        writer, _ = connection.client.do_put(descriptor, batch.schema)
        writer.write_batch(batch)
        until(lambda: service.server.activity.totals.calls["do_put", "FFQ_EXCHANGE_MISMATCH"])
        with pytest.raises(ExchangeMismatch):
            connection.call(writer.close)
