"""From what a user calls a root to a backend: local paths, `file:` URLs, object stores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.store.backend import Backend
from ffq_spark.store.confined import ConfinedBackend
from ffq_spark.store.local import LocalBackend

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_BUCKETS = frozenset({"s3", "gs", "gcs"})
_SIGNED = re.compile(r"[?&](sig|sas|token|password|secret|x-(amz|goog)-\w+)=", re.IGNORECASE)
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs", "abfss": "abfs"}


def split(root: str) -> tuple[str, str]:
    """The protocol and the path of a root, in any of the spellings Spark users know.

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
    """The backend of a root. fsspec and the store's client are imported only when needed.

    `confined`: no link below a local root leads out of it.
    """
    if not root:
        raise BadOption("no path was given", option="path")
    if any(_holds_credentials(link) for link in root.split("::")):
        # They would be in every plan, record and log.
        told = (
            "the URL holds credentials: give them as storage options, or leave them to the client"
        )
        raise BadOption(told, option="path")
    protocol, path = split(root)
    if protocol == "file":
        return ConfinedBackend(path) if confined else LocalBackend(path)
    if protocol == "s3":
        from ffq_spark.store.s3 import S3Backend

        return S3Backend(path, options)
    from ffq_spark.store.remote import RemoteBackend

    return RemoteBackend(protocol, path, options)


def _holds_credentials(url: str) -> bool:
    protocol, path = split(url)
    if protocol == "file":
        return False
    login, at, host = path.split("/", 1)[0].rpartition("@")
    # `container@account` and `user@host` are names; no bucket's name has an @.
    if at and (":" in login or protocol in _BUCKETS):
        return True
    # A secret with a slash ends the host's name before its @.
    name, colon, port = host.partition(":")
    is_cut = bool(colon) and name != "arn" and not port.isdecimal()
    return (is_cut and protocol in {*_BUCKETS, "http", "https"}) or bool(_SIGNED.search(path))
