"""Choose the backend for a root: a local path, a `file:` URL or the URL of an object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.store.backend import Backend
from ffq_spark.store.confined import ConfinedBackend
from ffq_spark.store.credentials import holds_credentials
from ffq_spark.store.local import LocalBackend

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs", "abfss": "abfs"}


def split(root: str) -> tuple[str, str]:
    """Split a root into its protocol and path; accept Spark's and Hadoop's spellings.

    >>> split("/data/x"), split("file:/data/x"), split("s3a://bucket/x/")
    (('file', '/data/x'), ('file', '/data/x'), ('s3', 'bucket/x'))
    """
    match = _SCHEME.fullmatch(root)
    protocol, rest = (match[1].lower(), match[2]) if match else ("file", root)
    protocol = _HADOOP_NAMES.get(protocol, protocol)
    if protocol == "file":
        path = "/" + rest.lstrip("/") if match else rest
        return protocol, path.rstrip("/") or "/"
    return protocol, rest.removeprefix("//").rstrip("/")


def open_backend(root: str, options: Mapping[str, Any], *, confined: bool = False) -> Backend:
    """Open the backend for a root; import fsspec and the store's client only when needed.

    With `confined` a local root refuses links that lead out of it.
    """
    if not root:
        raise BadOption("no path was given", option="path")
    if holds_credentials(root):
        # Plans, records and logs would show them.
        message = (
            "the URL holds credentials: pass them as storage options (`storage.*`), or let the "
            "client find them in its environment. If it is a relative path, begin it with `./`"
        )
        raise BadOption(message, option="path")
    protocol, path = split(root)
    if protocol == "file":
        return ConfinedBackend(path) if confined else LocalBackend(path)
    if protocol == "s3":
        from ffq_spark.store.s3 import S3Backend

        return S3Backend(path, options)
    from ffq_spark.store.remote import RemoteBackend

    return RemoteBackend(protocol, path, options)
