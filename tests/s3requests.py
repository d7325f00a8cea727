"""Counts the requests to S3 inside aiobotocore, below all of our clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ffq_spark.exchange.scan.cost_model import Requests

_KINDS = {
    "PutObject": "put",
    "CreateMultipartUpload": "put",
    "UploadPart": "put",
    "CompleteMultipartUpload": "put",
    "GetObject": "get",
    "HeadObject": "get",
    "ListObjectsV2": "list",
    "DeleteObject": "delete",
    "DeleteObjects": "delete",
}


@dataclass
class Counted:
    """The S3 operations with their keys or prefixes, in the order in which they began."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def requests(self, *, data: bool) -> Requests:
        """Count the requests for parts and indexes (`data`), or for records."""
        kinds = [_KINDS[name] for name, key in self.calls if ("/shuffle/" in key) == data]
        return Requests(**{kind: kinds.count(kind) for kind in set(_KINDS.values())})


@contextmanager
def counted_requests() -> Iterator[Counted]:
    from aiobotocore.client import AioBaseClient

    counted, usual = Counted(), AioBaseClient._make_api_call

    async def count(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        counted.calls.append((operation, arguments.get("Key") or arguments.get("Prefix") or ""))
        return await usual(client, operation, arguments)

    AioBaseClient._make_api_call = count
    try:
        yield counted
    finally:
        AioBaseClient._make_api_call = usual
