"""Options of the service."""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.options.declared import Options, option
from ffq_spark.options.parsing import (
    MIB,
    boolean,
    number,
    size,
    text,
)


@dataclass(frozen=True)
class ServeOptions(Options):
    """Options of `ffq.serve` and `ffq-spark serve`."""

    host: str = option(
        "host",
        text,
        "127.0.0.1",
        "The address to listen on. An address that other machines can reach needs `tokens` and "
        "TLS, or `insecure`.",
        per_call=True,
    )
    port: int = option(
        "port", number(0, 65535), 8815, "The port; 0 means any free port.", per_call=True
    )
    writable: bool = option(
        "writable",
        boolean,
        False,
        "Let callers write to the served roots. With `tokens` they also need the scope `write`.",
        per_call=True,
        shown="false",
    )
    tokens: str = option(
        "tokens",
        text,
        "",
        "A file of bearer tokens, written by `ffq-spark token`. Without it, everybody who can "
        "reach the port may read.",
        per_call=True,
    )
    tls_certificate: str = option(
        "tlsCertificate",
        text,
        "",
        "A PEM file with the server's certificate and its chain.",
        per_call=True,
    )
    tls_key: str = option(
        "tlsKey", text, "", "A PEM file with the private key of `tlsCertificate`.", per_call=True
    )
    tls_client_ca: str = option(
        "tlsClientCa",
        text,
        "",
        "A PEM file with certificate authorities. Callers must present a certificate that one of "
        "them has signed (mutual TLS).",
        per_call=True,
    )
    insecure: bool = option(
        "insecure",
        boolean,
        False,
        "Allow an address that other machines can reach without tokens or without TLS.",
        per_call=True,
        shown="false",
    )
    server_credits: int = option(
        "serverCredits",
        size,
        1024 * MIB,
        "Bytes that the server may hold for all readers. Each of `maxReaders` has an equal share, "
        "so slow readers do not take bytes from others. Larger parts are read in pieces.",
        shown="1GiB",
    )
    max_readers: int = option(
        "maxReaders",
        number(1, 10_000),
        64,
        "The maximum number of concurrent streams of rows; further readers wait.",
    )
    max_writers: int = option(
        "maxWriters",
        number(1, 1_000),
        4,
        "The maximum number of concurrent uploads; further writers wait.",
    )
    max_wait: int = option(
        "maxWait",
        number(0),
        60,
        "Seconds that a reader or writer waits before the server asks it to try again later.",
    )
    max_idle: int = option(
        "maxIdle",
        number(1, 86_400),
        300,
        "Seconds that an upload waits for its next message before the server ends it. A reader "
        "that has not read for that long loses its slot to one that waits.",
    )
    max_message_bytes: int = option(
        "maxMessageBytes",
        size,
        2 * MIB,
        "The approximate maximum size of the messages in which batches are sent.",
        shown="2MiB",
    )
    max_upload_bytes: int = option(
        "maxUploadBytes",
        size,
        64 * MIB,
        "The maximum size of a batch that the server accepts. Its dictionaries count as plain "
        "columns, and each row as at least 8 bytes.",
        shown="64MiB",
    )
    max_request_bytes: int = option(
        "maxRequestBytes",
        size,
        MIB,
        "The maximum size of a ticket, descriptor or action that the server accepts.",
        shown="1MiB",
    )
    write_buffer_bytes: int = option(
        "writeBufferBytes",
        size,
        64 * MIB,
        "Memory that one upload may use for rows. Rows above it are spilled to local disk.",
        shown="64MiB",
    )
    lease_seconds: int = option(
        "producerLease",
        number(1),
        300,
        "Seconds for which a producer's query counts as alive after its last upload or heartbeat.",
    )
    sql: bool = option(
        "sql",
        boolean,
        False,
        "Let callers run SQL statements on Spark. A statement can do everything that the Spark "
        "session can. Without this option, callers may only read views by name.",
        per_call=True,
        shown="false",
    )
    max_queries: int = option(
        "maxQueries",
        number(1, 1_000),
        4,
        "The maximum number of statements that run on Spark at once; further ones are queued.",
    )
    max_queued: int = option(
        "maxQueued",
        number(0),
        100,
        "The maximum number of queued statements; further ones are refused.",
    )
    query_timeout: int = option(
        "queryTimeout", number(1), 3600, "Seconds after which a running statement is canceled."
    )
    results_root: str = option(
        "resultsRoot",
        text,
        "",
        "The directory for results of statements. The server and Spark's executors must reach it.",
        per_call=True,
        shown="a temporary directory",
    )
    results_ttl: int = option(
        "resultsTtl", number(1), 3600, "Seconds after which the result of a statement is deleted."
    )
    drain_seconds: int = option(
        "drainSeconds",
        number(0),
        30,
        "Seconds that the server gives running calls to finish after it receives SIGTERM.",
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
