"""Names that the Python package and the Scala plugin share, each declared once, here.

`jars/build.py` generates a Scala object from every class of this module. So a changed name changes
on both sides, and the Scala code does not compile if it uses a removed name.
"""

from __future__ import annotations


class Setting:
    """Settings of a Spark session, prefixes of their names, and limits of their values."""

    SPARK_LINE = "4.3."
    """The versions of Spark that the jar is built for; on others the plugin stays off."""
    PREFIX = "spark.ffq."
    STORAGE = "storage."
    EXTENSIONS = "spark.sql.extensions"
    SOCKETS = "spark.python.unix.domain.socket.enabled"
    SOCKET_DIR = "spark.python.unix.domain.socket.dir"
    SOCKET_DIR_LENGTH = 61
    """A socket's path has at most 104 characters, and Spark's file name takes 43 of them."""
    SOCKETS_VARIABLE = "PYSPARK_UDS_MODE"
    JAVA_OPTIONS = "JavaOptions"


class PluginSetting:
    """Settings below `spark.ffq.` that the plugin itself reads."""

    PYTHON = "python"
    LEASE_SECONDS = "lease.seconds"
    CLEANUP_ENABLED = "cleanup.enabled"
    CLEANUP_INTERVAL = "cleanup.interval"
    CLEANUP_TTL = "cleanup.ttl"
    PLANNER_ENABLED = "planner.enabled"


class Source:
    """The data source, and the options with which the plugin stamps a write."""

    FORMAT = "ffqshuffle"
    PATH = "path"
    QUERY = "query"
    INITIATOR = "initiator"
    LEASE_SECONDS = "leaseSeconds"


class PlanField:
    """The request for a scan's plan and the note that answers it."""

    REQUEST = "ffq.plan"
    """The key of the request among the metadata of the first column."""
    BEGIN = "\x01ffq<"
    END = ">ffq\x01"
    PARTITIONS = "partitions"
    ORDER = "order"
    BOUNDS = "bounds"
    REPORT = "report"
    FILTERS = "filters"
    KEYS = "keys"
    TASKS = "tasks"
    COUNTS = "counts"


class FilterField:
    """A condition on one column, in the request for a plan."""

    COLUMN = "column"
    OP = "op"
    VALUES = "values"


class Metric:
    """What a plan and its tasks report for the SQL tab."""

    PARTITIONS_READ = "partitions_read"
    PARTITIONS_PRUNED = "partitions_pruned"
    PARTS = "parts"
    PARTS_PRUNED = "parts_pruned"
    REPLACED = "replaced"
    ROWS = "rows"
    BYTES = "bytes"
    PEAK_BYTES = "peak_bytes"
    REQUESTS = "requests"
    WAITED_MS = "waited_ms"


class QueryNumber:
    """The bits of query numbers: milliseconds, then random bits."""

    RANDOM_BITS = 21


class StewardProgram:
    """The program that the driver starts as its steward."""

    MODULE = "ffq_spark.spark.steward"


class StewardEvent:
    """Events that the driver sends to the steward, and their fields."""

    KIND = "event"
    HELLO = "hello"
    ROOT = "root"
    OPEN = "open"
    ENDED = "ended"
    BEAT = "beat"
    BYE = "bye"
    JOB_START = "job_start"
    JOB_END = "job_end"
    STAGE_END = "stage_end"
    TASK_START = "task_start"
    TASK_END = "task_end"
    EXECUTOR_LOST = "executor_lost"
    RUN = "run"
    LEASE_SECONDS = "lease_seconds"
    CLEANUP = "cleanup"
    CLEANUP_INTERVAL_SECONDS = "cleanup_interval_seconds"
    CLEANUP_TTL_SECONDS = "cleanup_ttl_seconds"
    DROPPED = "dropped"
    INITIATOR = "initiator"
    QUERY = "query"
    STORAGE = "storage"
    JOB = "job"
    TASKS = "tasks"
    TIME = "time"


class TaskField:
    """Fields of a task attempt, in the events that report it and in the task log."""

    TASK = "task"
    MAP_TASK = "map_task"
    STAGE = "stage"
    STAGE_ATTEMPT = "stage_attempt"
    ATTEMPT_NUMBER = "attempt_number"
    EXECUTOR = "executor"
    HOST = "host"
    SPECULATIVE = "speculative"
    LAUNCH_MS = "launch_ms"
    FINISH_MS = "finish_ms"
    STATE = "state"
    REASON = "reason"


class TaskState:
    """States of a task attempt, and of a stage, in events and in the task log."""

    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    KILLED = "KILLED"
    LOST = "LOST"


class StewardOrder:
    """Orders that the steward gives to the driver, and their fields."""

    KIND = "order"
    ANSWER = "answer"
    SETTLED = "settled"
    CANCEL = "cancel"
    QUERY = "query"
    MESSAGE = "message"


OBJECTS = (
    *(Setting, PluginSetting, Source, PlanField, FilterField, Metric, QueryNumber),
    *(StewardProgram, StewardEvent, TaskField, TaskState, StewardOrder),
)
"""The classes that become Scala objects of the same names."""


def constants(names: type) -> dict[str, str | int]:
    """List the constants of one class.

    >>> constants(FilterField)
    {'COLUMN': 'column', 'OP': 'op', 'VALUES': 'values'}
    """
    return {name: value for name, value in vars(names).items() if name.isupper()}
