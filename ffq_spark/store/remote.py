"""Object stores through fsspec: conditional puts, no listing cache, one client a process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import fsspec

from ffq_spark.errors import BadOption
from ffq_spark.store.backend import Entry

# fsspec's own fallback for mode="create" looks first and writes then, which two writers can do at
# once: only clients that put the condition into the request are trusted.
_CONDITIONAL_PUT = frozenset({"s3", "gs", "gcs", "abfs", "az", "memory"})
_MULTIPART_BYTES = 16 << 20
_CONFLICT_RETRIES = 6


class RemoteBackend:
    """A prefix of an object store."""

    def __init__(self, protocol: str, root: str, options: Mapping[str, Any]) -> None:
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
        data: bytes = self._fs.cat_file(self._path(path), start=start or None, end=end)
        return data

    def create(self, path: str, data: bytes) -> None:
        for retry in range(_CONFLICT_RETRIES):
            try:
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

    def list(self, path: str) -> list[Entry]:
        try:
            found = self._fs.ls(self._path(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        directory = self._path(path).strip("/")
        entries = []
        for info in found:
            full = info["name"].strip("/")
            if full == directory:
                continue
            name = full.rsplit("/", 1)[-1]
            entries.append(Entry(name, info["type"] == "directory", int(info.get("size") or 0)))
        return entries

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(path))


def _error_code(error: BaseException) -> str:
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
