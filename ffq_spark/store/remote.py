"""Object stores through fsspec: conditional puts, no listing cache, one client a process."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import fsspec

from ffq_spark.errors import BadOption
from ffq_spark.format.layout import DATA, RECORDS
from ffq_spark.store.backend import Directory, Entry, Skip

# fsspec's own fallback for mode="create" looks first and writes then, which two writers can do at
# once: only clients that put the condition into the request are trusted.
_CONDITIONAL_PUT = frozenset({"s3", "gs", "gcs", "abfs", "az", "memory"})
_MULTIPART_BYTES = 16 << 20
_CONFLICT_RETRIES = 6
_BULK = 1000
_MAP_TASK_SLASHES = 3  # shuffle/<query>/<stage>/<map task>
# fsspec's memory looks before it writes; all its users are threads of this process.
_MEMORY = threading.Lock()


class RemoteBackend:
    """A prefix of an object store."""

    def __init__(self, protocol: str, root: str, options: Mapping[str, Any]) -> None:
        try:
            fsspec.get_filesystem_class(protocol)
        except (ValueError, ImportError) as error:
            raise BadOption(f"no storage {protocol}: {error}", option="path") from None
        self._protocol = protocol
        self._root = root
        self._options = dict(options)
        self._client: tuple[int, Any] | None = None
        self.create_once = "conditional-put" if protocol in _CONDITIONAL_PUT else ""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    @property
    def _fs(self) -> Any:
        # Spark's daemon forks its workers, and no client survives a fork.
        pid = os.getpid()
        if self._client is None or self._client[0] != pid:
            self._client = (pid, self._connect())
        return self._client[1]

    def _connect(self) -> Any:
        options = self._options
        if self._protocol != "memory":
            options = {"skip_instance_cache": True, "use_listings_cache": False, **options}
        try:
            return fsspec.filesystem(self._protocol, **options)
        except (ValueError, ImportError) as error:
            raise BadOption(f"no storage {self._protocol}: {error}", option="path") from None

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def url(self, path: str) -> str:
        return f"{self._protocol}://{self._path(path)}"

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        end = None if length is None else start + length
        try:
            data: bytes = self._fs.cat_file(self._path(path), start=start or None, end=end)
        except OSError as error:
            # A range that begins at the end or beyond.
            if _error_code(error) in ("InvalidRange", "416"):
                return b""
            raise
        return data

    def create(self, path: str, data: bytes) -> None:
        for retry in range(_CONFLICT_RETRIES):
            try:
                with _MEMORY if self._protocol == "memory" else contextlib.nullcontext():
                    self._fs.pipe_file(self._path(path), data, mode="create", chunksize=5 << 30)
                return
            except OSError as error:
                code = _error_code(error)
                if isinstance(error, FileExistsError) or code in ("PreconditionFailed", "412"):
                    raise FileExistsError(self.url(path)) from None
                if code not in ("ConditionalRequestConflict", "409"):
                    raise
                time.sleep(0.05 * 2**retry)
        raise OSError(f"{self.url(path)} stayed in conflict with another writer")

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        head, rest = bytearray(), iter(pieces)
        for piece in rest:
            head += piece
            if len(head) > _MULTIPART_BYTES:
                break
        else:
            self._fs.pipe_file(self._path(path), bytes(head))
            return
        with self._fs.open(self._path(path), "wb", block_size=_MULTIPART_BYTES) as file:
            file.write(bytes(head))
            head.clear()
            for piece in rest:
                file.write(piece)

    def replace(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(self._path(path), data)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(path))

    def delete_many(self, paths: Sequence[str]) -> None:
        names = [self._path(path) for path in paths]
        if self._protocol == "s3":
            for start in range(0, len(names), _BULK):
                self._bulk_delete(names[start : start + _BULK])
            return
        for path in paths:
            self.delete(path)

    def _bulk_delete(self, names: list[str]) -> None:
        bucket = names[0].partition("/")[0]
        keys = [{"Key": name.partition("/")[2]} for name in names]
        delete = {"Objects": keys, "Quiet": True}
        answer = self._fs.call_s3("delete_objects", Bucket=bucket, Delete=delete)
        if failed := answer.get("Errors"):
            raise OSError(f"{len(failed)} of {len(names)} files were not deleted: {failed[0]}")

    def delete_directories(self, paths: Iterable[str]) -> None:
        pass

    def tree(self, path: str, skip: Skip) -> Iterator[Directory]:
        files = self._keys(path) if self._protocol == "s3" else self._found(path)
        for directory, group in itertools.groupby(files, lambda file: file[0].rpartition("/")[0]):
            if not skip(directory):
                # An attempt may have as many files as there are partitions.
                while piece := list(itertools.islice(group, _BULK)):
                    yield Directory(directory, piece)

    def _keys(self, path: str) -> Iterator[tuple[str, int]]:
        """All objects below a directory, page by page."""
        for page in self._pages(path):
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):
                    yield self._relative(f"{page['Name']}/{item['Key']}"), item["Size"]

    def _pages(self, path: str, **options: str) -> Iterator[Any]:
        bucket, _, prefix = self._path(path).partition("/")
        inside = f"{prefix}/" if prefix else ""
        place = {"Bucket": bucket, "Prefix": inside, "MaxKeys": _BULK, **options}
        while True:
            try:
                page = self._fs.call_s3("list_objects_v2", **place)
            except FileNotFoundError:
                return
            yield {"Name": bucket, **page}
            if not page.get("IsTruncated"):
                return
            place["ContinuationToken"] = page["NextContinuationToken"]

    def _found(self, path: str) -> Iterator[tuple[str, int]]:
        """The same where a client can only list all at once: the files of one map task."""
        if path.count("/") < _MAP_TASK_SLASHES:
            for entry in self.scan(path):
                inner = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir:
                    yield from self._found(inner)
                else:
                    yield inner, entry.size
            return
        for name, info in sorted(self._fs.find(self._path(path), detail=True).items()):
            file = self._relative(name)
            # Some clients take a directory that is missing for the beginning of other names.
            if info["type"] != "directory" and file.startswith(f"{path}/"):
                yield file, int(info.get("size") or 0)

    def _relative(self, name: str) -> str:
        return name.strip("/").removeprefix(self._root.strip("/")).strip("/")

    def remove_leftovers(self, before_ms: int, dry_run: bool) -> int:
        if self._protocol != "s3":
            return 0
        # Never beside them: the root may be shared with others' files.
        return sum(self._abort_uploads(path, before_ms, dry_run) for path in (DATA, RECORDS))

    def _abort_uploads(self, path: str, before_ms: int, dry_run: bool) -> int:
        bucket, _, prefix = self._path(path).partition("/")
        count = 0
        for upload in self._uploads(bucket, f"{prefix}/"):
            if upload["Initiated"].timestamp() * 1000 >= before_ms:
                continue
            count += 1
            if not dry_run:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.call_s3(
                        "abort_multipart_upload",
                        Bucket=bucket,
                        Key=upload["Key"],
                        UploadId=upload["UploadId"],
                    )
        return count

    def _uploads(self, bucket: str, prefix: str) -> Iterator[Any]:
        """All unfinished multipart uploads, page by page."""
        page: dict[str, str] = {}
        while True:
            place = {"Bucket": bucket, "Prefix": prefix, **page}
            answer = self._fs.call_s3("list_multipart_uploads", **place)
            yield from answer.get("Uploads", ())
            page = {"KeyMarker": answer.get("NextKeyMarker", "")}
            if not answer.get("IsTruncated") or not page["KeyMarker"]:
                return
            page["UploadIdMarker"] = answer.get("NextUploadIdMarker", "")

    def scan(self, path: str) -> Iterator[Entry]:
        if self._protocol == "s3":
            yield from self._children(path)
            return
        try:
            found = self._fs.ls(self._path(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        directory = self._path(path).strip("/")
        for info in found:
            full = info["name"].strip("/")
            if full != directory:
                name = full.rsplit("/", 1)[-1]
                yield Entry(name, info["type"] == "directory", int(info.get("size") or 0))

    def _children(self, path: str) -> Iterator[Entry]:
        for page in self._pages(path, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                yield Entry(item["Prefix"].rstrip("/").rsplit("/", 1)[-1], True, 0)
            for item in page.get("Contents", ()):
                if name := item["Key"].rsplit("/", 1)[-1]:
                    yield Entry(name, False, item["Size"])


def _error_code(error: BaseException) -> str:
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
