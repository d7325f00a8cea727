"""Object stores through fsspec: conditional puts, no listing cache, one client a process."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import fsspec

from ffq_spark.errors import BadOption
from ffq_spark.store.backend import Directory, Entry, Skip
from ffq_spark.store.multipart import BLOCKS_AT_ONCE, PART_BYTES, blocks
from ffq_spark.store.redaction import scrub
from ffq_spark.store.retry import CutShort, Policy, error_code

# fsspec's own fallback for mode="create" looks first and writes then, which two writers can do at
# once: only clients that put the condition into the request are trusted.
_CONDITIONAL_PUT = frozenset({"s3", "gs", "gcs", "abfs", "az", "memory"})
# Clients that retry by themselves; only what they let through is tried once more.
_RETRYING = frozenset({"gs", "gcs", "abfs", "az"})
BULK = 1000
"""So many files are listed or deleted by one request."""
_MAP_TASK_SLASHES = 3  # shuffle/<query>/<stage>/<map task>
# fsspec's memory looks before it writes; all its users are threads of this process.
_MEMORY = threading.Lock()
_CONNECTING = threading.Lock()
# A client takes longer to make than a small task to run: one for all tasks of a process.
_CLIENTS: dict[str, Any] = {}
_INHERITED: list[dict[str, Any]] = []


def _forked() -> None:
    global _CONNECTING, _MEMORY, _CLIENTS
    # Kept, so that they are never closed here: both processes share one epoll, and the parent would
    # wait in vain for answers on connections that its child took out of it.
    _INHERITED.append(_CLIENTS)
    _CONNECTING, _MEMORY, _CLIENTS = threading.Lock(), threading.Lock(), {}


# A lock that another thread held at the moment of the fork would never be free in the child, and no
# client survives a fork, which is how Spark's daemon makes its workers.
os.register_at_fork(after_in_child=_forked)


class RemoteBackend:
    """A prefix of an object store, by what fsspec offers for every kind of store."""

    def __init__(self, protocol: str, root: str, options: Mapping[str, Any]) -> None:
        try:
            fsspec.get_filesystem_class(protocol)
        except (ValueError, ImportError) as error:
            raise BadOption(f"no storage {protocol}: {error}", option="path") from None
        self._protocol = protocol
        self._root = root
        self._options = dict(options)
        self._policy = Policy(tries=2) if protocol in _RETRYING else Policy()
        self.create_once = "conditional-put" if protocol in _CONDITIONAL_PUT else ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A task that freezes its heap should find the client's modules in it: Spark's daemon would
        # look through them after each task. A client that is missing is an error where it is used.
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
            told = scrub(f"no storage {self._protocol}: {error}", self._options)
            raise BadOption(told, option="path") from None

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
            # A range that begins at the end or beyond.
            if error_code(error) in ("InvalidRange", "416"):
                return b""
            raise

    def _read(self, path: str, start: int, length: int | None) -> bytes:
        end = None if length is None else start + length
        data: bytes = self.client.cat_file(self._path(path), start=start or None, end=end)
        if length is not None and len(data) < length:
            size = self.client.info(self._path(path))["size"]
            if start + len(data) < size:
                raise CutShort(f"{len(data)} bytes came of {min(length, size - start)}")
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
            self._write_large(path, given(head, rest))

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
                # An attempt may have as many files as there are partitions.
                while piece := list(itertools.islice(group, BULK)):
                    yield Directory(directory, piece)

    def _files(self, path: str) -> Iterator[tuple[str, int]]:
        """All files below a directory; the client lists those of a map task all at once."""
        if path.count("/") < _MAP_TASK_SLASHES:
            for entry in self.scan(path):
                inner = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir:
                    yield from self._files(inner)
                else:
                    yield inner, entry.size
            return
        found = self._policy.run(lambda: self.client.find(self._path(path), detail=True))
        root = self._root.strip("/")
        for name, info in sorted(found.items()):
            file = name.strip("/").removeprefix(root).strip("/")
            # Some clients take a directory that is missing for the beginning of other names.
            if info["type"] != "directory" and file.startswith(f"{path}/"):
                yield file, int(info.get("size") or 0)

    def remove_leftovers(self, before_ms: int, spared: Skip, dry_run: bool) -> int:
        return 0

    def clock_ms(self) -> int | None:
        return None

    def scan(self, path: str) -> Iterator[Entry]:
        try:
            found = self._policy.run(lambda: self.client.ls(self._path(path), detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return
        directory = self._path(path).strip("/")
        for info in found:
            full = info["name"].strip("/")
            if full != directory:
                name = full.rsplit("/", 1)[-1]
                yield Entry(name, info["type"] == "directory", int(info.get("size") or 0))


_TAKEN = ("PreconditionFailed", "412")


def joined(parts: list[bytearray]) -> bytearray:
    """All parts as one, the first of them grown."""
    whole = parts[0] if parts else bytearray()
    for part in parts[1:]:
        whole += part
    return whole


def given(held: list[bytearray], rest: Iterable[bytearray]) -> Iterable[bytearray]:
    """What is held and then the rest, each let go of when it is given away."""
    while held:
        yield held.pop(0)
    yield from rest
