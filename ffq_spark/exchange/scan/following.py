"""Choose the steps of each batch of a stream that follows the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from ffq_spark.errors import Replaced
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.records import StepRecord
from ffq_spark.options import ReadOptions

_AHEAD = 64


def next_end(log: StepLog, start: int, latest: int, options: ReadOptions) -> int:
    """Choose the last step of the next batch, within `maxStepsPerTrigger` and `maxBytesPerTrigger`.

    A batch has at least one step. The first batch of a stream from the beginning reaches at least
    the oldest step that is still visible, so that it is a snapshot.
    """
    if latest <= start:
        return start
    least = log.read(latest).base if start == 0 else start + 1
    most = latest
    if options.max_steps_per_trigger:
        most = min(latest, max(least, start + options.max_steps_per_trigger))
    if options.max_bytes_per_trigger is None:
        return most
    end, size = least, 0
    while end <= most:
        steps = log.read_many(range(end, min(end + _AHEAD, most + 1)))
        for step, total in zip(steps, accumulate(s.body.bytes for s in steps), strict=True):
            if size + total > options.max_bytes_per_trigger:
                return max(least, step.step - 1)
        size += sum(step.body.bytes for step in steps)
        end += len(steps)
    return most


def steps_between(log: StepLog, start: int, end: int, options: ReadOptions) -> Sequence[StepRecord]:
    """List the steps of a batch from `start` to `end`; planning it again gives the same steps."""
    if end <= start:
        return ()
    if start == 0:
        return log.visible(end)
    steps: list[StepRecord] = []
    for step in log.read_many(range(start + 1, end + 1)):
        begins = options.starting_step == str(step.step)
        if step.body.mode != "replace" or begins:
            steps.append(step)
        elif options.on_replace == "follow":
            steps += log.visible(step.step)
        elif options.on_replace == "fail":
            message = f"step {step.step} replaces the steps that were read before it"
            raise Replaced(message, path=paths.step(step.step), option="onReplace")
    return steps


def check_available(log: StepLog, start: int, latest: int, options: ReadOptions) -> None:
    """Raise StepExpired if data that a stream from `start` will read may have been deleted."""
    if not log.expired():
        return
    # A stream that begins at 0 begins with the current snapshot, which never expires.
    needed = [] if start == 0 else _steps_to_read(log, start, latest, options)
    if options.starting_step.isdecimal():
        needed.append(int(options.starting_step))
    log.refuse_any_expired(needed)


def _steps_to_read(log: StepLog, start: int, latest: int, options: ReadOptions) -> list[int]:
    # With onReplace=fail a stream fails before it reads the replaced step, so leave that step out.
    policy = "skip" if options.on_replace == "fail" else options.on_replace
    steps = steps_between(log, start, latest, replace(options, on_replace=policy))
    return [step.step for step in steps]
