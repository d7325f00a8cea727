"""Plan which partitions one task reads: FFQ's adaptive planning, a pure function of sizes.

Neighbouring partitions are joined up to a target size; a heavy one is split into shards. The plan
depends only on sizes and numbers of parts, never on the order of map tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskParts:
    """The parts that one read task reads: whole partitions, or one shard of one partition."""

    partitions: tuple[int, ...]
    shard: int = 0
    shards: int = 1


def plan(
    sizes: Mapping[int, int],
    target: int,
    min_tasks: int = 1,
    max_tasks: int = 0,
    pieces: Mapping[int, int] | None = None,
) -> list[TaskParts]:
    """Plan the tasks for partitions of these sizes; `max_tasks` 0 sets no limit.

    `pieces` is the largest number of shards of each partition; without it there is no limit.

    >>> [task.partitions for task in plan({0: 10, 1: 15, 2: 5, 3: 20}, target=25)]
    [(0, 1), (2, 3)]
    """
    groups = _joined(sizes, target)
    if len(groups) < min_tasks:
        groups = _at_least(groups, min_tasks)
    if max_tasks and len(groups) > max_tasks:
        groups = _at_most(groups, max_tasks)
    return _sharded(groups, sizes, target, max_tasks, pieces)


def _joined(sizes: Mapping[int, int], target: int) -> list[list[int]]:
    groups: list[list[int]] = []
    total = 0
    for partition in sorted(sizes):
        if groups and total + sizes[partition] <= target:
            groups[-1].append(partition)
            total += sizes[partition]
        else:
            groups.append([partition])
            total = sizes[partition]
    return groups


def _at_least(groups: list[list[int]], count: int) -> list[list[int]]:
    groups = [list(group) for group in groups]
    while len(groups) < count:
        position = next((i for i, group in enumerate(groups) if len(group) > 1), None)
        if position is None:
            break
        group = groups[position]
        half = len(group) // 2
        groups[position : position + 1] = [group[:half], group[half:]]
    return groups


def _at_most(groups: list[list[int]], count: int) -> list[list[int]]:
    groups = [list(group) for group in groups]
    while len(groups) > count:
        last = groups.pop()
        groups[-1].extend(last)
    return groups


def _sharded(
    groups: list[list[int]],
    sizes: Mapping[int, int],
    target: int,
    max_tasks: int,
    pieces: Mapping[int, int] | None,
) -> list[TaskParts]:
    is_heavy = _heavy_test(sorted(sizes.values()), target)
    room = max_tasks - len(groups) if max_tasks else None
    planned: list[TaskParts] = []
    for group in groups:
        size = sizes[group[0]]
        shards = 1
        if len(group) == 1 and is_heavy(size):
            shards = max(2, -(-size // target))
            if pieces is not None:
                shards = min(shards, pieces[group[0]])
            if room is not None:
                shards = min(shards, 1 + room)
                room -= shards - 1
        planned += [TaskParts(tuple(group), shard, shards) for shard in range(shards)]
    return planned


def heavy_partitions(sizes: Mapping[int, int], target: int) -> list[int]:
    """Return the partitions to split: above the target, and much larger than the others.

    >>> heavy_partitions({0: 8, 1: 120, 2: 8, 3: 8}, target=32)
    [1]
    """
    is_heavy = _heavy_test(sorted(sizes.values()), target)
    return [partition for partition in sorted(sizes) if is_heavy(sizes[partition])]


def _heavy_test(observed: Sequence[int], target: int) -> Callable[[int], bool]:
    """Return a test for sizes of partitions to split, given the sizes of all, ascending."""
    if not observed:
        return lambda size: False
    p50, p95, p99 = (_percentile(observed, share) for share in (50, 95, 99))
    return lambda size: (
        size > target
        and (
            len(observed) == 1
            or (p99 > p95 and size >= p99)
            or size >= 4 * target
            or (p50 > 0 and size >= 8 * p50)
        )
    )


def _percentile(ascending: Sequence[int], share: int) -> int:
    """Return the nearest-rank percentile."""
    rank = -(-share * len(ascending) // 100)
    return ascending[max(rank, 1) - 1]
