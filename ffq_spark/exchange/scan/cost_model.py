"""Estimate requests, bytes and dollars of a write and of a full read before they run.

The model follows the code. It assumes that all parts are equal in size and that every map task has
rows of every partition. Requests of the plugin while a job runs (leases, attempts, cancel requests)
depend on time, not on data, and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.planner import TaskParts, plan
from ffq_spark.exchange.read.fetch import RANGES_AT_ONCE
from ffq_spark.options import MAX_PARTITIONS, ReadOptions
from ffq_spark.store.multipart import BLOCKS_AT_ONCE, PART_BYTES

LAYOUTS = ("parts", "packed")
LEAST_PART_BYTES = 256
"""The size of the smallest part: an Arrow stream names its columns."""

_JOINED_BYTES = ReadOptions.credits // RANGES_AT_ONCE
_INDEX_FILES = 2
_INDEX_BYTES, _INDEX_BYTES_A_PART, _INDEX_BYTES_A_PACKED_PART = 150, 170, 257
_MANIFEST_BYTES, _MANIFEST_BYTES_A_PART = 4096, 27
_RECORDS = 6
_GB = 1 << 30


@dataclass(frozen=True)
class Prices:
    """Dollars for 1,000 requests, and for a GB (2^30 bytes) that is stored for a month.

    The defaults are list prices of S3 Standard in us-east-1.
    """

    put: float = 0.005
    get: float = 0.0004
    storage: float = 0.023


@dataclass(frozen=True)
class Requests:
    """Numbers of requests by price: PUT and POST, GET and HEAD, LIST (as PUT), DELETE (free)."""

    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.put + other.put,
            self.get + other.get,
            self.list + other.list,
            self.delete + other.delete,
        )

    @property
    def total(self) -> int:
        return self.put + self.get + self.list + self.delete

    def dollars(self, prices: Prices) -> float:
        return ((self.put + self.list) * prices.put + self.get * prices.get) / 1000


WRITE_RECORDS = Requests(put=9, get=12, list=9, delete=2)
"""The most requests of the driver around one write, which the first write to a root needs.

They are for the probe of create-once, the records of format, query, exchange, manifest, pending,
outcome and step, and for looking up what exists already.
"""

READ_RECORDS = Requests(get=12, list=3)
"""The most requests of the driver to plan a read of one step: the log, the step, the manifest."""


@dataclass(frozen=True)
class Shape:
    """The size of a step to write, and how it will be read."""

    maps: int
    partitions: int
    bytes: int
    layout: str = "parts"
    tasks: int = 0
    target_partition_bytes: int = ReadOptions.target_partition_bytes

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise BadOption(
                f"layout={self.layout!r} must be one of: {', '.join(LAYOUTS)}", option="layout"
            )
        for name in ("maps", "partitions", "target_partition_bytes"):
            if getattr(self, name) < 1:
                raise BadOption(f"{name}={getattr(self, name)} must be at least 1", option=name)
        if self.partitions > MAX_PARTITIONS:
            message = f"partitions={self.partitions} must be at most {MAX_PARTITIONS}"
            raise BadOption(message, option="partitions")
        if self.tasks < 0:
            message = f"tasks={self.tasks} must be at least 1, or 0 to let the planner decide"
            raise BadOption(message, option="tasks")
        if self.bytes < self.parts * LEAST_PART_BYTES:
            least = f"{self.parts} parts of at least {LEAST_PART_BYTES} bytes"
            message = f"{self.bytes} bytes are too few for {least}"
            raise BadOption(f"{message}; take fewer map tasks or partitions", option="bytes")

    @property
    def parts(self) -> int:
        return self.maps * self.partitions

    @property
    def part_bytes(self) -> int:
        return self.bytes // self.parts

    @property
    def task_bytes(self) -> int:
        """The `targetPartitionBytes` of the read: as given, or for the given number of tasks."""
        if not self.tasks:
            return self.target_partition_bytes
        if self.tasks > self.partitions:
            return max(1, self.bytes // self.tasks)
        return -(-self.partitions // self.tasks) * self.maps * self.part_bytes


@dataclass(frozen=True)
class Estimate:
    """The requests of one write and one full read of a shape to an object store."""

    shape: Shape
    objects: int
    read_tasks: int
    write_data: Requests
    read_data: Requests
    index_bytes: int
    manifest_bytes: int

    @property
    def write(self) -> Requests:
        return self.write_data + WRITE_RECORDS

    @property
    def read(self) -> Requests:
        return self.read_data + READ_RECORDS

    @property
    def stored_bytes(self) -> int:
        return self.shape.bytes + self.index_bytes + self.manifest_bytes

    def monthly_dollars(self, prices: Prices) -> float:
        return self.stored_bytes / _GB * prices.storage


def estimate(shape: Shape) -> Estimate:
    """Estimate the requests and bytes of a shape.

    >>> both = [estimate(Shape(2000, 2000, 1 << 40, layout)) for layout in LAYOUTS]
    >>> [each.write_data.put for each in both]
    [4004000, 74000]
    """
    packed = shape.layout == "packed"
    data_objects = shape.maps if packed else shape.parts
    object_bytes = shape.bytes // data_objects
    a_part = _INDEX_BYTES_A_PACKED_PART if packed else _INDEX_BYTES_A_PART
    index_bytes = _INDEX_BYTES + shape.partitions * a_part
    uploads = data_objects * upload_requests(object_bytes)
    indexes = shape.maps * _INDEX_FILES * upload_requests(index_bytes)
    tasks = _tasks(shape)
    return Estimate(
        shape=shape,
        objects=data_objects + shape.maps * _INDEX_FILES + _RECORDS,
        read_tasks=len(tasks),
        write_data=Requests(put=uploads + indexes),
        read_data=Requests(get=_packed_gets(shape, tasks) if packed else shape.parts),
        index_bytes=shape.maps * _INDEX_FILES * index_bytes,
        manifest_bytes=_MANIFEST_BYTES + shape.parts * _MANIFEST_BYTES_A_PART,
    )


def upload_requests(size: int) -> int:
    """Return the requests to create an object: one, or those of a multipart upload.

    >>> upload_requests(32 << 20), upload_requests((32 << 20) + 1)
    (1, 5)
    """
    blocks = -(-size // PART_BYTES)
    return 1 if blocks <= BLOCKS_AT_ONCE else 1 + blocks + 1


def _tasks(shape: Shape) -> list[TaskParts]:
    sizes = dict.fromkeys(range(shape.partitions), shape.maps * shape.part_bytes)
    return plan(sizes, shape.task_bytes, pieces=dict.fromkeys(sizes, shape.maps))


def _packed_gets(shape: Shape, tasks: list[TaskParts]) -> int:
    """Count the ranges of packed objects: a task reads neighbouring parts of each together."""
    together = max(1, _JOINED_BYTES // shape.part_bytes)
    # The shards of one partition share its parts, one for each map task.
    whole = (task for task in tasks if task.shard == 0)
    return shape.maps * sum(-(-len(task.partitions) // together) for task in whole)
