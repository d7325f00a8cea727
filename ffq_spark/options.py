"""Every option, declared once: name, type, default and text. The documentation is made from this.

A value comes from the call's option, else the conf `spark.ffq.<name>`, else the environment
`FFQ_<NAME>`, else the default. Options that describe one call only (`keys`, `steps`, …) are not
taken from conf or environment.

>>> WriteOptions.resolve({"keys": "a, b", "maxBufferBytes": "64MiB"}).max_buffer_bytes
67108864
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ffq_spark.errors import BadOption, UnknownOption

MIB = 1 << 20
CONF_PREFIX = "spark.ffq."
STORAGE_PREFIX = "storage."
MAX_PARTITIONS = 10_000

_SIZE = re.compile(r"([0-9]+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")

# What Spark itself adds to the options of a source.
_SPARK_OWN = frozenset({"path", "checkpointlocation"})

Declared = TypeVar("Declared", bound="Options")


def text(value: str) -> str:
    return value


def names(value: str) -> tuple[str, ...]:
    """Column names, separated by commas."""
    found = tuple(name.strip() for name in value.split(","))
    if not all(found):
        raise ValueError("an empty name between the commas")
    if len(set(found)) != len(found):
        raise ValueError("a name is given twice")
    return found


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return value.lower() == "true"


def number(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        found = int(value)
        if not minimum <= found <= maximum:
            raise ValueError(f"not between {minimum} and {maximum}")
        return found

    return parse


def size(value: str) -> int:
    """Bytes, with an optional unit: `1048576`, `64m`, `256MiB`."""
    match = _SIZE.fullmatch(value.strip())
    if not match or int(match[1]) == 0:
        raise ValueError("not a size such as 1048576, 64m or 256MiB")
    exponent = " kmgt".index(match[2].lower() or " ")
    return int(match[1]) << (10 * exponent)


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"not one of {', '.join(choices)}")
        return value.lower()

    return parse


def partition_set(value: str) -> frozenset[int]:
    """Reduce partitions: `3`, `0-7,12`."""
    found: set[int] = set()
    for item in value.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise ValueError("not a list such as 3 or 0-7,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > MAX_PARTITIONS:
            raise ValueError(f"{item.strip()} is no range of partitions")
        found.update(range(first, last + 1))
    return frozenset(found)


def attempt(value: str) -> str:
    """`registered`, `latest` or a number; FFQ's 0 means latest."""
    choice = value.lower()
    if choice in ("registered", "latest"):
        return choice
    return "latest" if int(choice) == 0 else str(number(1)(choice))


def safe_name(value: str) -> str:
    """A name that is safe as a file's."""
    if not _NAME.fullmatch(value):
        raise ValueError("not made of letters, digits, dots, dashes and underscores")
    return value


def starting_step(value: str) -> str:
    """`earliest`, `latest` or a step's number."""
    return value.lower() if value.lower() in ("earliest", "latest") else str(number(1)(value))


def option(
    name: str,
    parse: Callable[[str], Any],
    default: Any,
    doc: str,
    *,
    per_call: bool = False,
    shown: str | None = None,
) -> Any:
    """Declare an option as a field of an options class."""
    metadata = {
        "name": name,
        "parse": parse,
        "doc": doc,
        "per_call": per_call,
        "shown": ("" if default in (None, (), "") else str(default)) if shown is None else shown,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """What reading and writing have in common."""

    @classmethod
    def declared(cls) -> Iterator[dataclasses.Field[Any]]:
        return (field for field in dataclasses.fields(cls) if "name" in field.metadata)

    @classmethod
    def resolve(
        cls: type[Declared],
        given: Mapping[str, str],
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Declared:
        """Typed options of one call; a name or value that cannot be right is an error."""
        lowered = {name.lower(): value for name, value in given.items()}
        cls._refuse_unknown(lowered, given)
        ambient = {name.lower(): value for name, value in (conf or {}).items()}
        variables = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for field in cls.declared():
            name, per_call = field.metadata["name"], field.metadata["per_call"]
            found = lowered.get(name.lower())
            if found is None and not per_call:
                found = ambient.get((CONF_PREFIX + name).lower())
                found = variables.get(environment_name(name)) if found is None else found
            if found is not None:
                values[field.name] = _parse(name, field.metadata["parse"], found)
        return cls(**values)

    @classmethod
    def of_python(cls: type[Declared], given: Mapping[str, Any]) -> Declared:
        """Options from Python's names and values, with the same checks as from strings.

        >>> ServeOptions.of_python({"max_readers": 8, "port": None}).max_readers
        8
        """
        spellings = {field.name: field.metadata["name"] for field in cls.declared()}
        texts = {}
        for name, value in given.items():
            if value is not None:
                texts[spellings.get(name, name)] = _text(name, value)
        return cls.resolve(texts)

    @classmethod
    def _refuse_unknown(cls, lowered: Mapping[str, str], given: Mapping[str, str]) -> None:
        known = {field.metadata["name"].lower(): field.metadata["name"] for field in cls.declared()}
        for name in given:
            key = name.lower()
            if key in known or key in _SPARK_OWN or key.startswith(STORAGE_PREFIX):
                continue
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            listing = f"known: {', '.join(known.values())}"
            raise UnknownOption(f"{cls.purpose()} has no option {name}{hint} ({listing})")

    @classmethod
    def purpose(cls) -> str:
        return cls.__name__.removesuffix("Options").lower()


@dataclass(frozen=True)
class WriteOptions(Options):
    """Options of `df.write.format("ffqshuffle")`."""

    keys: tuple[str, ...] = option(
        "keys",
        names,
        (),
        "Columns that decide a row's partition, separated by commas. Needed for the first write "
        "unless `partitions` is 1; later writes take the exchange's own.",
        per_call=True,
    )
    partitions: int | None = option(
        "partitions",
        number(1, MAX_PARTITIONS),
        None,
        f"Number of reduce partitions, 1 to {MAX_PARTITIONS}. Later writes take the exchange's.",
        per_call=True,
        shown="1 without keys",
    )
    hash: str = option(
        "hash",
        one_of("spark", "ffq"),
        "",
        "`spark`: Murmur3, placement equals `pmod(hash(keys), partitions)`. `ffq`: SipHash-1-3 as "
        "FFQ places rows.",
        per_call=True,
        shown="spark",
    )
    compression: str = option(
        "compression",
        one_of("none", "lz4", "zstd"),
        "none",
        "Of Arrow buffers (`payload=arrow`) or of whole frames (`payload=ffqs`). FFQ reads "
        "compressed parts only as `ffqs`.",
    )
    layout: str = option(
        "layout",
        one_of("parts", "packed"),
        "parts",
        "`parts`: a file for each partition of a map task, as FFQ has them. `packed`: one file for "
        "all partitions of a map task, far fewer requests on an object store.",
    )
    payload: str = option(
        "payload",
        one_of("arrow", "ffqs"),
        "arrow",
        "`arrow`: each part is one Arrow IPC stream. `ffqs`: FFQ version 2 frames.",
    )
    weight_column: str = option(
        "weightColumn",
        text,
        "",
        "A column of signed integers that makes the rows a Z-set: a row counts as often as the sum "
        "of its weights says, and -1 takes back what 1 gave. Later writes take the exchange's own.",
        per_call=True,
    )
    sort_by: tuple[str, ...] = option(
        "sortBy",
        names,
        (),
        "Columns by which the rows of each part are sorted: ascending, nulls first.",
        per_call=True,
    )
    statistics: tuple[str, ...] = option(
        "statistics",
        names,
        ("auto",),
        "Columns with min and max for each part: `auto` (fixed-width columns, the first 32), "
        "`all`, `none`, or names.",
        shown="auto",
    )
    max_buffer_bytes: int = option(
        "maxBufferBytes",
        size,
        256 * MIB,
        "Memory that one write task may use for rows; what exceeds it goes through local disk.",
        shown="256MiB",
    )
    query: int | None = option(
        "query",
        number(0),
        None,
        "The number of this write's query. Each is used once, for ever.",
        per_call=True,
        shown="new, ascending in time",
    )
    stage: int = option(
        "stage", number(0), 0, "The stage number in the data's paths.", per_call=True
    )
    initiator: str = option(
        "initiator",
        safe_name,
        "",
        "Who makes the write. The plugin sets it, with `query` and `leaseSeconds`.",
        per_call=True,
        shown="new",
    )
    lease_seconds: int = option(
        "leaseSeconds",
        number(0),
        0,
        "How long the initiator counts as alive after its last sign of life; 0: it gives none.",
        per_call=True,
    )
    stream_id: str = option(
        "streamId",
        safe_name,
        "",
        "The stream that a batch belongs to: its batches become steps in order, each once. It "
        "belongs to one streaming query.",
        per_call=True,
        shown="of a streaming query its own id",
    )
    batch: int | None = option(
        "batch",
        number(0),
        None,
        "With `streamId`, in a batch write: the number of the batch. Run again it changes nothing.",
        per_call=True,
        shown="Spark's, of a streaming query",
    )
    on_mismatch: str = option(
        "onMismatch",
        one_of("warn", "fail", "ignore"),
        "warn",
        "What to do if a batch that is run again gives other rows than the first time. The first "
        "run's rows stay in any case.",
    )
    takeover: bool = option(
        "takeover",
        boolean,
        False,
        "Take a stream over from another streaming query, which may then write to it no more.",
        per_call=True,
        shown="false",
    )
    require_offsets: bool = option(
        "requireOffsets",
        boolean,
        False,
        "Refuse a batch whose source offsets cannot be recorded; they are found through the option "
        "`checkpointLocation`.",
        shown="false",
    )
    unsafe_commit: bool = option(
        "unsafeCommit",
        boolean,
        False,
        "Allow a store that cannot create a file only if it does not exist. Two writers at once "
        "may then lose a step.",
        shown="false",
    )


@dataclass(frozen=True)
class ReadOptions(Options):
    """Options of `spark.read.format("ffqshuffle")`."""

    steps: str = option(
        "steps",
        text,
        "",
        "Read these steps alone, replaced or not: `17`, `10..17`, `latest`, `all`.",
        per_call=True,
        shown="the current snapshot",
    )
    as_of_step: int | None = option(
        "asOfStep",
        number(1),
        None,
        "Read the snapshot as it was after this step.",
        per_call=True,
        shown="the newest",
    )
    partitions: frozenset[int] | None = option(
        "partitions",
        partition_set,
        None,
        "Read these reduce partitions alone: `3`, `0-7,12`.",
        per_call=True,
        shown="all",
    )
    columns: tuple[str, ...] = option(
        "columns",
        names,
        (),
        "Read these columns alone, in this order.",
        per_call=True,
        shown="all",
    )
    attempt: str = option(
        "attempt",
        attempt,
        "registered",
        "Which attempt of each map task: `registered`, `latest` (or 0), or a number, the last two "
        "with `query`.",
        per_call=True,
    )
    query: int | None = option(
        "query",
        number(0),
        None,
        "Read one query's output, whether it is in the log or not.",
        per_call=True,
    )
    stage: int | None = option(
        "stage", number(0), None, "With `query`: the stage, if there are several.", per_call=True
    )
    verify: str = option(
        "verify",
        one_of("full", "counts", "none"),
        "full",
        "What is compared with the manifest before rows are given out: `full` (bytes, rows, "
        "checksum), `counts` (bytes and rows), `none`.",
    )
    credits: int = option(
        "credits",
        size,
        64 * MIB,
        "Bytes that one read task may have asked for and not yet given on; a larger range passes "
        "alone. Local files are read one range at a time in any case.",
        shown="64MiB",
    )
    target_partition_bytes: int = option(
        "targetPartitionBytes",
        size,
        128 * MIB,
        "Neighbouring partitions are read by one task up to this size.",
        shown="128MiB",
    )
    min_tasks: int = option("minTasks", number(1), 1, "At least so many read tasks, if possible.")
    max_tasks: int = option(
        "maxTasks", number(0), 0, "At most so many read tasks; 0 sets no limit."
    )
    prune_by_filters: bool = option(
        "pruneByFilters",
        boolean,
        False,
        "Let filters prune without the plugin too. Safe only for a DataFrame that is used in one "
        "query, once: Spark 4.3 plans its later scans with the filters of the first. With "
        "the plugin filters always prune, and safely.",
        shown="false",
    )
    consolidate: bool = option(
        "consolidate",
        boolean,
        False,
        "With `weightColumn`: give each row once with the sum of its weights, and none whose sum "
        "is 0.",
        per_call=True,
        shown="false",
    )
    starting_step: str = option(
        "startingStep",
        starting_step,
        "earliest",
        "Where a stream begins: `earliest` (the current snapshot), `latest` (what comes from now "
        "on), or a step's number.",
        per_call=True,
    )
    max_steps_per_trigger: int = option(
        "maxStepsPerTrigger", number(0), 0, "At most so many steps in one batch; 0: no limit."
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        size,
        None,
        "About so many bytes in one batch; always at least one step.",
        shown="no limit",
    )
    consumer: str = option(
        "consumer",
        safe_name,
        "",
        "A name under which a stream's progress is recorded; retention keeps what it has not read.",
        per_call=True,
    )
    on_replace: str = option(
        "onReplace",
        one_of("fail", "follow", "skip"),
        "fail",
        "What a stream does with a step that replaces all earlier ones: `fail`, `follow` (give its "
        "rows out as new ones) or `skip` it.",
        per_call=True,
    )
    metadata_columns: bool = option(
        "metadataColumns",
        boolean,
        False,
        "Add `_ffq_step`, `_ffq_query`, `_ffq_map_task`, `_ffq_attempt` and `_ffq_partition`.",
        shown="false",
    )


@dataclass(frozen=True)
class ServeOptions(Options):
    """Options of `ffq.serve` and `ffq-spark serve`."""

    host: str = option(
        "host",
        text,
        "127.0.0.1",
        "The address to listen on. One that other machines reach needs `tokens` and TLS, or "
        "`insecure`.",
        per_call=True,
    )
    port: int = option(
        "port", number(0, 65535), 8815, "The port; 0: any that is free.", per_call=True
    )
    writable: bool = option(
        "writable",
        boolean,
        False,
        "Let callers write to the served roots. With `tokens` they need the scope `write` besides.",
        per_call=True,
        shown="false",
    )
    tokens: str = option(
        "tokens",
        text,
        "",
        "A file of bearer tokens, made by `ffq-spark token`. Without one everybody who reaches the "
        "port may read.",
        per_call=True,
    )
    tls_certificate: str = option(
        "tlsCertificate", text, "", "A PEM file: the server's certificate and chain.", per_call=True
    )
    tls_key: str = option("tlsKey", text, "", "A PEM file: the certificate's key.", per_call=True)
    tls_client_ca: str = option(
        "tlsClientCa",
        text,
        "",
        "A PEM file: callers must show a certificate that one of these has signed (mutual TLS).",
        per_call=True,
    )
    insecure: bool = option(
        "insecure",
        boolean,
        False,
        "Listen to other machines without tokens or without TLS.",
        per_call=True,
        shown="false",
    )
    server_credits: int = option(
        "serverCredits",
        size,
        1024 * MIB,
        "Bytes that the server may hold for all readers; each of `maxReaders` has an equal share, "
        "so that no slow one takes another's. Larger parts are read in pieces.",
        shown="1GiB",
    )
    max_readers: int = option(
        "maxReaders",
        number(1, 10_000),
        64,
        "Streams of rows that may be under way at once; others wait in line.",
    )
    max_writers: int = option(
        "maxWriters", number(1, 1_000), 4, "Uploads that may be under way at once; others wait."
    )
    max_wait: int = option(
        "maxWait",
        number(0),
        60,
        "Seconds that a reader or writer waits in line before it is told to try again.",
    )
    max_message_bytes: int = option(
        "maxMessageBytes",
        size,
        2 * MIB,
        "Batches are sent in messages of about this size at most.",
        shown="2MiB",
    )
    max_upload_bytes: int = option(
        "maxUploadBytes", size, 64 * MIB, "The largest batch that is taken.", shown="64MiB"
    )
    max_request_bytes: int = option(
        "maxRequestBytes",
        size,
        MIB,
        "The largest ticket, descriptor or action that is taken.",
        shown="1MiB",
    )
    write_buffer_bytes: int = option(
        "writeBufferBytes",
        size,
        64 * MIB,
        "Memory that one upload may use for rows; what exceeds it goes through local disk.",
        shown="64MiB",
    )
    lease_seconds: int = option(
        "producerLease",
        number(1),
        300,
        "How long a query of a producer counts as alive after its last upload or heartbeat.",
    )
    sql: bool = option(
        "sql",
        boolean,
        False,
        "Let callers give SQL text to Spark. It can do whatever the Spark session can; without "
        "this, callers may name views alone.",
        per_call=True,
        shown="false",
    )
    max_queries: int = option(
        "maxQueries", number(1, 1_000), 4, "Queries that run on Spark at once; others are queued."
    )
    max_queued: int = option(
        "maxQueued", number(0), 100, "Queries that may be queued; further ones are refused."
    )
    query_timeout: int = option(
        "queryTimeout", number(1), 3600, "Seconds after which a running query is canceled."
    )
    results_root: str = option(
        "resultsRoot",
        text,
        "",
        "Where queries write their results: storage that Spark's executors and the server reach.",
        per_call=True,
        shown="a temporary directory",
    )
    results_ttl: int = option(
        "resultsTtl", number(1), 3600, "Seconds after which the result of a query is removed."
    )
    drain_seconds: int = option(
        "drainSeconds",
        number(0),
        30,
        "How long the server lets calls finish when it is told to stop (SIGTERM).",
    )
    metrics_port: int | None = option(
        "metricsPort",
        number(0, 65535),
        None,
        "Serve Prometheus metrics over HTTP on this port; needs the extra `metrics`.",
        per_call=True,
        shown="off",
    )
    metrics_host: str = option(
        "metricsHost", text, "127.0.0.1", "The address for metrics.", per_call=True
    )


def environment_name(name: str) -> str:
    """The environment variable of an option.

    >>> environment_name("maxBufferBytes")
    'FFQ_MAX_BUFFER_BYTES'
    """
    return "FFQ_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def storage_options(
    given: Mapping[str, str], conf: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What goes to the storage client: `storage.key`, `storage.client_kwargs.region_name`, ….

    >>> storage_options({"storage.endpoint_url": "http://127.0.0.1:1", "storage.anon": "true"})
    {'endpoint_url': 'http://127.0.0.1:1', 'anon': True}
    """
    ambient = {
        name[len(CONF_PREFIX) :]: value
        for name, value in (conf or {}).items()
        if name.startswith(CONF_PREFIX)
    }
    values = {**ambient, **given}
    found: dict[str, Any] = {}
    # A group given as JSON comes before the values that are added to it.
    for name in sorted(values, key=lambda name: name.count(".")):
        if name.lower().startswith(STORAGE_PREFIX):
            *parents, leaf = name[len(STORAGE_PREFIX) :].split(".")
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
                if not isinstance(place, dict):
                    raise BadOption("both a value and a group of values", option=name)
            place[leaf] = _storage_value(name, values[name])
    return found


def _storage_value(name: str, value: str) -> Any:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            # The value may be a secret: it is not repeated.
            raise BadOption("not valid JSON", option=name) from None
    return value


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, Iterable):
        return ",".join(str(item) for item in value)
    raise BadOption(f"{name}={value!r} is no value for an option", option=name)


def _parse(name: str, parse: Callable[[str], Any], value: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise BadOption(f"{name}={value!r}: {error}", option=name) from None
