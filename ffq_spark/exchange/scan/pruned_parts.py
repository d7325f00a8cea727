"""Leave out the parts of a table in which no row can match a read's filters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.pruning import Predicate, may_match
from ffq_spark.exchange.ledger.step_parts import PARTS_SCHEMA
from ffq_spark.format.hashing import KeyHashes
from ffq_spark.format.manifest import ENDS_FILE

READ_SCHEMA = PARTS_SCHEMA.append(ENDS_FILE)
"""The columns of the parts that a read plans with."""


def pruned_parts(
    table: pa.Table, predicates: Sequence[Predicate], hashes: KeyHashes | None
) -> pa.Table:
    """Return the parts that can hold a row with one of the hashes that meets all predicates.

    `hashes` are those of the keys of all matching rows; None stands for all hashes.
    """
    if hashes is not None:
        table = where(table, _may_hold(table, hashes))
    # Statistics are not copied with the parts that remain.
    parts = table.select(READ_SCHEMA.names)
    return where(parts, may_match(table, predicates)) if predicates else parts


def _may_hold(parts: pa.Table, hashes: KeyHashes) -> NDArray[np.bool_]:
    """Return for each part whether a row with one of these hashes may lie in it."""
    reduces, moduli = parts["reduce"].to_numpy(), parts["modulus"].to_numpy()
    keep = np.zeros(len(reduces), np.bool_)
    for modulus in np.unique(moduli).tolist():
        keep |= (moduli == modulus) & np.isin(reduces, hashes.partitions(modulus))
    return keep


def where(table: pa.Table, keep: NDArray[np.bool_]) -> pa.Table:
    """Filter a table; rows are copied unless they are neighbours and most of the table."""
    kept = np.flatnonzero(keep)
    # A short slice would keep the whole table in memory as long as the plan.
    if 2 * len(kept) > len(keep) and kept[-1] - kept[0] + 1 == len(kept):
        return table.slice(kept[0], len(kept))
    return table.take(pa.array(kept))
