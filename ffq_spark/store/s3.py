"""The backend for S3: it sends S3's own requests, and retries each one separately."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from fsspec.asyn import sync

from ffq_spark.errors import BadOption
from ffq_spark.format.paths import DATA, RECORDS
from ffq_spark.store.backend import Entry, Leftover
from ffq_spark.store.multipart import upload
from ffq_spark.store.remote import BULK, RemoteBackend
from ffq_spark.store.retry import CutShort

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class S3Backend(RemoteBackend):
    """A prefix of a bucket."""

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        super().__init__("s3", root, options)
        tries = _tries(_retries(self._options))
        if tries is not None:
            self._policy = replace(self._policy, tries=tries)

    def _client_options(self) -> dict[str, Any]:
        config = self._options.get("config_kwargs") or {}
        # s3fs and botocore retry, too. Switch that off: their tries would multiply the policy's.
        retries = {k: v for k, v in _retries(self._options).items() if k != "max_attempts"}
        once = {"retries": {**retries, "total_max_attempts": 1}}
        return {**self._options, "config_kwargs": {**config, **once}}

    def _connect(self) -> Any:
        client = super()._connect()
        client.retries = 1
        return client

    def _call(self, method: str, **request: Any) -> Any:
        return self._policy.run(lambda: self.client.call_s3(method, **request))

    def _place(self, path: str) -> dict[str, str]:
        bucket, key, _ = self.client.split_path(self._path(path))
        return {"Bucket": bucket, "Key": key}

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        client = self.client
        data: bytes = sync(client.loop, _get, client, self._place(path), start, length)
        return data

    def _create(self, path: str, data: bytes) -> None:
        self.client.call_s3("put_object", **self._place(path), Body=data, IfNoneMatch="*")

    def replace(self, path: str, data: bytes | bytearray) -> None:
        self._call("put_object", **self._place(path), Body=data)

    def _write_large(self, path: str, parts: Iterable[bytearray]) -> None:
        upload(self._call, self._place(path), parts)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call("delete_object", **self._place(path))

    def delete_many(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), BULK):
            self._policy.run(partial(self._delete_bulk, paths[start : start + BULK]))

    def _delete_bulk(self, paths: Sequence[str]) -> None:
        places = [self._place(path) for path in paths]
        delete = {"Objects": [{"Key": place["Key"]} for place in places], "Quiet": True}
        answer = self.client.call_s3("delete_objects", Bucket=places[0]["Bucket"], Delete=delete)
        if failed := answer.get("Errors"):
            raise _NotDeleted(failed, len(paths))

    def _files(self, path: str) -> Iterator[tuple[str, int]]:
        inside = f"{path}/" if path else ""
        for prefix, page in self._pages(path):
            for file in page.get("Contents", ()):
                if not file["Key"].endswith("/"):
                    yield inside + file["Key"][len(prefix) :], int(file["Size"])

    def _pages(self, path: str, **request: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a listing page by page, each with the prefix that all its keys begin with."""
        place = self._place(path)
        prefix = f"{place['Key']}/" if place["Key"] else ""
        request = {name.capitalize(): value for name, value in request.items()}
        request |= {"Bucket": place["Bucket"], "Prefix": prefix, "MaxKeys": BULK}
        while True:
            try:
                page = self._call("list_objects_v2", **request)
            except FileNotFoundError:
                return
            yield prefix, page
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def clock_ms(self) -> int | None:
        place = self._place(RECORDS)
        request = {"Bucket": place["Bucket"], "Prefix": f"{place['Key']}/", "MaxKeys": 1}
        try:
            answer = self._call("list_objects_v2", **request)
            date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        except (FileNotFoundError, KeyError, ValueError):
            return None
        return int(date.timestamp() * 1000)

    def leftovers(self, before_ms: int) -> Iterator[Leftover]:
        # Only below these prefixes: the root may also hold files of other programs.
        for path in (DATA, RECORDS):
            place = self._place(path)
            for begun in self._uploads(place["Bucket"], f"{place['Key']}/"):
                if begun["Initiated"].timestamp() * 1000 < before_ms:
                    name = path + begun["Key"].removeprefix(place["Key"])
                    yield Leftover(name, begun["UploadId"])

    def delete_leftover(self, leftover: Leftover) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call(
                "abort_multipart_upload", **self._place(leftover.path), UploadId=leftover.upload
            )

    def _uploads(self, bucket: str, prefix: str) -> Iterator[Any]:
        """Yield all unfinished multipart uploads below a prefix."""
        page: dict[str, str] = {}
        while True:
            answer = self._call("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **page)
            yield from answer.get("Uploads", ())
            page = {"KeyMarker": answer.get("NextKeyMarker", "")}
            if not answer.get("IsTruncated") or not page["KeyMarker"]:
                return
            page["UploadIdMarker"] = answer.get("NextUploadIdMarker", "")

    def scan(self, path: str) -> Iterator[Entry]:
        for prefix, page in self._pages(path, delimiter="/"):
            for folder in page.get("CommonPrefixes", ()):
                yield Entry(folder["Prefix"][len(prefix) : -1], True, 0)
            for file in page.get("Contents", ()):
                # Skip the empty object that some tools create to mark a folder.
                if name := file["Key"][len(prefix) :]:
                    yield Entry(name, False, int(file["Size"]))


class _NotDeleted(OSError):
    """The response of a bulk delete lists files that were not deleted."""

    def __init__(self, failed: list[dict[str, Any]], requested: int) -> None:
        super().__init__(f"{len(failed)} of {requested} files were not deleted: {failed[0]}")
        self.response = {"Error": {"Code": failed[0].get("Code", "")}}


async def _get(client: Any, place: dict[str, str], start: int, length: int | None) -> bytes:
    request = {}
    if start or length is not None:
        last = "" if length is None else start + length - 1
        request = {"Range": f"bytes={start}-{last}"}
    answer = await client._call_s3("get_object", **place, **request)
    try:
        data: bytes = await answer["Body"].read()
    finally:
        answer["Body"].close()
    return _checked(data, answer, start, length)


def _checked(data: bytes, answer: dict[str, Any], start: int, length: int | None) -> bytes:
    """Return the range's data, or raise CutShort if the object has more of the range."""
    match = _CONTENT_RANGE.fullmatch(answer.get("ContentRange") or "")
    whole = int(match[3]) if match else int(answer["ContentLength"])
    if not match:
        # The answer is the whole object: no range was requested, or the server ignored it.
        if len(data) < whole:
            raise CutShort(f"storage sent {len(data)} of {whole} bytes")
        return data[start:] if length is None else data[start : start + length]
    expected = whole - start if length is None else min(length, whole - start)
    if len(data) != expected:
        raise CutShort(f"storage sent {len(data)} of {expected} bytes")
    return data


def _retries(options: Mapping[str, Any]) -> dict[str, Any]:
    config = options.get("config_kwargs") or {}
    retries = config.get("retries") if isinstance(config, Mapping) else ()
    if retries is not None and not isinstance(retries, Mapping):
        message = "retries must be a group of values, such as retries.max_attempts"
        raise BadOption(message, option="storage.config_kwargs.retries")
    return dict(retries or {})


def _tries(retries: Mapping[str, Any]) -> int | None:
    """Return how often the user wants each request to be tried, or None if that is not set.

    botocore's `max_attempts` does not count the first try.
    """
    for name, first in (("total_max_attempts", 0), ("max_attempts", 1)):
        if name in retries:
            value = str(retries[name])
            if not value.isdecimal():
                option = f"storage.config_kwargs.retries.{name}"
                raise BadOption(f"{name} must be a number", option=option)
            return max(1, int(value) + first)
    return None
