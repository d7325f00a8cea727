"""The paths of all files below an exchange's root: FFQ's data tree and the records in `_ffq/`."""

from __future__ import annotations

import re
from typing import NamedTuple

DATA = "shuffle"
RECORDS = "_ffq"
FORMAT = f"{RECORDS}/format.json"
EXCHANGE = f"{RECORDS}/exchange.json"
QUERIES = f"{RECORDS}/queries"
MANIFESTS = f"{RECORDS}/manifests"
STEPS = f"{RECORDS}/steps"
PENDING = f"{RECORDS}/pending"
LEASES = f"{RECORDS}/leases"
ATTEMPTS = f"{RECORDS}/attempts"
EXPIRED = f"{RECORDS}/expired"
LOG_CHECKPOINTS = f"{RECORDS}/checkpoints"
NEWEST = f"{LOG_CHECKPOINTS}/newest.json"
STREAMS = f"{RECORDS}/streams"
CONSUMERS = f"{RECORDS}/consumers"
HOLDS = f"{RECORDS}/holds"
PAUSES = f"{RECORDS}/pause"
PAUSE = f"{PAUSES}/asked.json"
ROUTING = f"{RECORDS}/routing"
PROBES = f"{RECORDS}/probes"
RECHECK_TIMES = f"{RECORDS}/cleanup/settled.arrow"

INDEX_JSON = "index.json"
INDEX_BIN = "index.bin"
PACKED = "parts.ipc"
CLAIM = "claim.json"
OUTPUT = "output.arrow"

MAX_ATTEMPT = (1 << 32) - 1
MAX_ID = (1 << 64) - 1

_NUMBER = re.compile(r"0|[1-9][0-9]*")
_PART = re.compile(r"part-(0|[1-9][0-9]*)\.ipc")
_STEP = re.compile(r"([0-9]{20})\.json")
_ROUTING = re.compile(r"([0-9]{6,9})\.json")


class AttemptId(NamedTuple):
    """One attempt of one map task, as its directory names it."""

    query: int
    stage: int
    map_task: int
    attempt: int

    @property
    def directory(self) -> str:
        """The attempt's directory, relative to the root.

        >>> AttemptId(7, 0, 3, 1).directory
        'shuffle/7/0/3/1'
        """
        return f"{DATA}/{self.query}/{self.stage}/{self.map_task}/{self.attempt}"

    @property
    def index_json(self) -> str:
        return f"{self.directory}/{INDEX_JSON}"

    @property
    def index_bin(self) -> str:
        return f"{self.directory}/{INDEX_BIN}"

    def part(self, reduce: int) -> str:
        """Return the path of one reduce partition's file.

        >>> AttemptId(7, 0, 3, 1).part(12)
        'shuffle/7/0/3/1/part-12.ipc'
        """
        return f"{self.directory}/part-{reduce}.ipc"

    @property
    def packed(self) -> str:
        """The file that holds all partitions in the packed layout.

        >>> AttemptId(7, 0, 3, 1).packed
        'shuffle/7/0/3/1/parts.ipc'
        """
        return f"{self.directory}/{PACKED}"

    @property
    def claim(self) -> str:
        """The claim that a process creates in a shared write before it writes the attempt."""
        return f"{self.directory}/{CLAIM}"

    @property
    def output(self) -> str:
        """The attempt's output (`AttemptOutput`), once it is registered in a shared write."""
        return f"{self.directory}/{OUTPUT}"


def spark_attempt(task_attempt_id: int) -> int:
    """Return the attempt number for a Spark task attempt id.

    Spark's task attempt id is unique in an application and grows with later attempts. Spark's
    attempt number is not, because it restarts at 0 when a stage is retried.

    >>> spark_attempt(0)
    1
    """
    if task_attempt_id >= MAX_ATTEMPT:
        raise OverflowError(
            f"Spark's task attempt id {task_attempt_id} exceeds the limit of {MAX_ATTEMPT - 1}; "
            "restart the Spark application"
        )
    return task_attempt_id + 1


ATTEMPT_DEPTH = len(AttemptId(0, 0, 0, 0).directory.split("/"))
"""How many names the path of an attempt directory has."""


def is_in_attempt(directory: str) -> bool:
    """Return whether a directory is an attempt directory or lies in one.

    >>> is_in_attempt("shuffle/7/0/3/1"), is_in_attempt("shuffle/7/0/3")
    (True, False)
    """
    return directory.count("/") >= ATTEMPT_DEPTH - 1


def parse_number(name: str) -> int | None:
    """Parse a canonical decimal number; return None for other names (`_tmp-1`, `007`).

    >>> parse_number("12"), parse_number("012")
    (12, None)
    """
    return int(name) if _NUMBER.fullmatch(name) else None


def parse_part(name: str) -> int | None:
    """Parse the reduce partition in a part's file name; return None for other names."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None


def parse_step(name: str) -> int | None:
    """Parse the step number in a step record's file name; return None for other names."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def parse_routing(name: str) -> int | None:
    """Parse the epoch in a routing record's file name; return None for other names."""
    match = _ROUTING.fullmatch(name)
    return int(match[1]) if match else None


def is_data(path: str) -> bool:
    """Return whether the path in a record lies in the data tree.

    >>> is_data("shuffle/1/0/0/1/part-0.ipc"), is_data("shuffle/../secret")
    (True, False)
    """
    first, *rest = path.split("/")
    return first == DATA and bool(rest) and not {"", ".", ".."} & set(rest)


def step(number: int) -> str:
    """Return the path of a step's record.

    >>> step(17)
    '_ffq/steps/00000000000000000017.json'
    """
    return f"{STEPS}/{number:020d}.json"


def routing(epoch: int) -> str:
    """Return the path of the record that begins a routing epoch.

    >>> routing(1)
    '_ffq/routing/000001.json'
    """
    return f"{ROUTING}/{epoch:06d}.json"


def log_checkpoint(size: int, last: int) -> str:
    """Return the path of the log checkpoint that holds `size` steps, up to and including `last`.

    >>> log_checkpoint(64, 128)
    '_ffq/checkpoints/64/00000000000000000128.arrows'
    """
    return f"{LOG_CHECKPOINTS}/{size}/{last:020d}.arrows"


def query(number: int) -> str:
    """Return the path of the record that opens a query."""
    return f"{QUERIES}/{number}.json"


def job(number: int) -> str:
    """Return the path of the job record, which all map tasks of a shared write read."""
    return f"{QUERIES}/{number}.job.json"


def outcome(number: int) -> str:
    """Return the path of the outcome, the record that ends a query."""
    return f"{QUERIES}/{number}.outcome.json"


def cancel(number: int) -> str:
    """Return the path of the record that requests the cancellation of a query."""
    return f"{QUERIES}/{number}.cancel.json"


def lease(initiator: str) -> str:
    """Return the path of the lease that an initiator renews while it runs."""
    return f"{LEASES}/{initiator}.json"


def task_log(initiator: str, query: int, part: int) -> str:
    """Return the path of one file of the task log, which the plugin's listener writes."""
    return f"{ATTEMPTS}/{initiator}/{query}.{part:06d}.jsonl"


def expired(number: int) -> str:
    """Return the path of the marker of an expired step, whose data may have been deleted."""
    return f"{EXPIRED}/{number:020d}.json"


def manifest(number: int) -> str:
    """Return the path of the manifest of a query's step."""
    return f"{MANIFESTS}/{number}.arrow"


def pending(number: int) -> str:
    """Return the path of the marker of a query that may be committed but not yet published."""
    return f"{PENDING}/{number}.json"


def stream_owner(stream: str, epoch: int) -> str:
    """Return the path of the record that makes one owner the writer of a stream.

    >>> stream_owner("nightly", 1)
    '_ffq/streams/nightly/000001.owner.json'
    """
    return f"{STREAMS}/{stream}/{epoch:06d}.owner.json"


def stream_epoch(stream: str, epoch: int) -> str:
    """Return the directory of the batch records of a stream's epoch."""
    return f"{STREAMS}/{stream}/{epoch:06d}"


def stream_batch(stream: str, epoch: int, batch: int) -> str:
    """Return the path of the record that makes a query's output a batch of a stream.

    >>> stream_batch("nightly", 1, 17)
    '_ffq/streams/nightly/000001/00000000000000000017.json'
    """
    return f"{stream_epoch(stream, epoch)}/{batch:020d}.json"


def pause_step(nonce: str) -> str:
    """Return the path of the step at which a pause stops streams; old pauses have no nonce.

    >>> pause_step("4f2a"), pause_step("")
    ('_ffq/pause/step-4f2a.json', '_ffq/pause/step.json')
    """
    return f"{PAUSES}/step-{nonce}.json" if nonce else f"{PAUSES}/step.json"


def consumer(name: str) -> str:
    """Return the path of a consumer's progress."""
    return f"{CONSUMERS}/{name}.json"


def hold(name: str) -> str:
    """Return the path of a hold, which keeps the snapshot as of a step from expiring."""
    return f"{HOLDS}/{name}.json"
