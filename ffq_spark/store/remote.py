"""The backend for object stores, on fsspec: conditional puts and no listing cache."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import fsspec

from ffq_spark.errors import BadOption
from ffq_spark.store.backend import Directory, Entry, Leftover, Skip
from ffq_spark.store.multipart import BLOCKS_AT_ONCE, PART_BYTES, blocks, chained
from ffq_spark.store.redaction import scrub
from ffq_spark.store.retry import CutShort, Policy, error_code

# fsspec's fallback for mode="create" checks that the file is missing and then writes it, so two
# writers can both succeed. Only these clients send the condition with the request.
_CONDITIONAL_PUT = frozenset({"s3", "gs", "gcs", "abfs", "az", "memory"})
# These clients retry by themselves, so the policy adds only one more try.
_RETRYING = frozenset({"gs", "gcs", "abfs", "az"})
BULK = 1000
"""The number of files that one request lists or deletes."""
_MAP_TASK_SLASHES = 3  # shuffle/<query>/<stage>/<map task>
# fsspec's memory file system checks and then writes. Its users are threads of this process, so a
# lock makes that atomic.
_MEMORY = threading.Lock()
_CONNECTING = threading.Lock()
# Creating a client takes longer than a small task runs, so all tasks of a process share one.
_CLIENTS: dict[str, Any] = {}
_INHERITED: list[dict[str, Any]] = []


def _forked() -> None:
    global _CONNECTING, _MEMORY, _CLIENTS
    # Keep the parent's clients so that they are never closed in this process: parent and child
    # share one epoll, and closing a connection here would remove it for the parent, too.
    _INHERITED.append(_CLIENTS)
    _CONNECTING, _MEMORY, _CLIENTS = threading.Lock(), threading.Lock(), {}


# Spark's daemon forks its workers. A lock that another thread holds during the fork stays locked in
# the child, and clients do not survive a fork.
os.register_at_fork(after_in_child=_forked)


class RemoteBackend:
    """A prefix of an object store, accessed with the operations that all fsspec clients have."""

    def __init__(self, protocol: str, root: str, options: Mapping[str, Any]) -> None:
        try:
            fsspec.get_filesystem_class(protocol)
        except (ValueError, ImportError) as error:
            message = f"storage protocol {protocol!r} is not available: {error}"
            raise BadOption(message, option="path") from None
        self._protocol = protocol
        self._root = root
        self._options = dict(options)
        self._policy = Policy(tries=2) if protocol in _RETRYING else Policy()
        self.create_once = "conditional-put" if protocol in _CONDITIONAL_PUT else ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Import the client's modules before the task freezes its heap: the garbage collection after
        # each task would otherwise traverse them. If the client is missing, its first use raises
        # the error.
        with contextlib.suppress(ValueError, ImportError):
            fsspec.get_filesystem_class(self._protocol)

    @property
    def client(self) -> Any:
        """The fsspec client, shared by all stores of this process with the same options."""
        client = _CLIENTS.get(self._client_key)
        if client is None:
            with _CONNECTING:
                client = _CLIENTS.get(self._client_key)
                if client is None:
                    client = _CLIENTS[self._client_key] = self._connect()
        return client

    @property
    def _client_key(self) -> str:
        return repr((self._protocol, sorted(self._client_options().items())))

    def _connect(self) -> Any:
        options = self._client_options()
        if self._protocol != "memory":
            options = {"skip_instance_cache": True, "use_listings_cache": False, **options}
        try:
            return fsspec.filesystem(self._protocol, **options)
        except (ValueError, ImportError) as error:
            message = f"storage protocol {self._protocol!r} is not available: {error}"
            raise BadOption(scrub(message, self._options), option="path") from None

    def _client_options(self) -> dict[str, Any]:
        return self._options

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def url(self, path: str) -> str:
        return f"{self._protocol}://{self._path(path)}"

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        try:
            return self._policy.run(lambda: self._read(path, start, length))
        except FileNotFoundError:
            raise FileNotFoundError(self.url(path)) from None
        except OSError as error:
            # The range begins at or after the end of the object.
            if error_code(error) in ("InvalidRange", "416"):
                return b""
            raise

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        end = None if length is None else start + length
        data: bytes = self.client.cat_file(self._path(path), start=start or None, end=end)
        if length is not None and len(data) < length:
            size = self.client.info(self._path(path))["size"]
            if start + len(data) < size:
                expected = min(length, size - start)
                raise CutShort(f"storage sent {len(data)} of {expected} bytes")
        return data

    def create(self, path: str, data: bytes) -> None:
        try:
            self._policy.run(lambda: self._create(path, data))
        except OSError as error:
            if isinstance(error, FileExistsError) or error_code(error) in _TAKEN:
                raise FileExistsError(self.url(path)) from None
            raise

    def _create(self, path: str, data: bytes) -> None:
        with _MEMORY if self._protocol == "memory" else contextlib.nullcontext():
            self.client.pipe_file(self._path(path), data, mode="create")

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        rest = blocks(pieces, PART_BYTES)
        head = list(itertools.islice(rest, BLOCKS_AT_ONCE + 1))
        if len(head) <= BLOCKS_AT_ONCE:
            self.replace(path, joined(head))
        else:
            self._write_large(path, chained(head, rest))

    def _write_large(self, path: str, parts: Iterable[bytearray]) -> None:
        with self.client.open(self._path(path), "wb", block_size=PART_BYTES) as file:
            for part in parts:
                file.write(part)

    def replace(self, path: str, data: bytes | bytearray) -> None:
        self._policy.run(lambda: self.client.pipe_file(self._path(path), bytes(data)))

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._policy.run(lambda: self.client.rm_file(self._path(path)))

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_directories(self, paths: Iterable[str]) -> None:
        pass

    def tree(self, path: str, skip: Skip) -> Iterator[Directory]:
        files = self._files(path)
        for directory, group in itertools.groupby(files, lambda file: file[0].rpartition("/")[0]):
            if not skip(directory):
                # An attempt's directory has up to one file for each partition.
                while piece := list(itertools.islice(group, BULK)):
                    yield Directory(directory, piece)

    def _files(self, path: str) -> Iterator[tuple[str, int]]:
        """Yield all files below a directory; fetch the files of one map task in one call."""
        if path.count("/") < _MAP_TASK_SLASHES:
            for entry in self.scan(path):
                inner = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir:
                    yield from self._files(inner)
                else:
                    yield inner, entry.size
            return
        infos = self._policy.run(lambda: self.client.find(self._path(path), detail=True))
        root = self._root.strip("/")
        for name, info in sorted(infos.items()):
            file = name.strip("/").removeprefix(root).strip("/")
            # For a missing directory some clients return all names that begin with its name.
            if info["type"] != "directory" and file.startswith(f"{path}/"):
                yield file, int(info.get("size") or 0)

    def leftovers(self, before_ms: int) -> Iterator[Leftover]:
        yield from ()

    def delete_leftover(self, leftover: Leftover) -> None:
        self.delete(leftover.path)

    def clock_ms(self) -> int | None:
        return None

    def scan(self, path: str) -> Iterator[Entry]:
        try:
            infos = self._policy.run(lambda: self.client.ls(self._path(path), detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return
        directory = self._path(path).strip("/")
        for info in infos:
            full = info["name"].strip("/")
            if full != directory:
                name = full.rsplit("/", 1)[-1]
                yield Entry(name, info["type"] == "directory", int(info.get("size") or 0))


_TAKEN = ("PreconditionFailed", "412")


def joined(parts: list[bytearray]) -> bytearray:
    """Append all parts to the first one, and return it."""
    whole = parts[0] if parts else bytearray()
    for part in parts[1:]:
        whole += part
    return whole
