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
