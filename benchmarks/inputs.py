"""Make the input of all contenders: random rows from numpy, stored as Parquet."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import RUNS_A_TURN, Settings, dataset, serve

SEED = 20_261_101
WORDS = 10_000
ROW_GROUPS = 5


def batch(generator: np.random.Generator, rows: int, keys: int) -> pa.Table:
    """Return random rows of about 21 bytes as Parquet: a key, a measurement, a number, a word."""
    words = pa.array([f"word {number:04d}" for number in range(WORDS)])
    return pa.table(
        {
            "k": generator.integers(0, keys, rows),
            "v": generator.random(rows),
            "i": generator.integers(0, 1 << 17, rows, dtype=np.int32),
            "s": words.take(pa.array(generator.integers(0, WORDS, rows))),
        }
    )


@dataset("input")
def make_input(settings: Settings, path: str) -> None:
    """Write four files of equal size for each core.

    Spark packs them into one task of equal size for each core.
    """
    os.makedirs(path)
    generator = np.random.default_rng(SEED)
    files = 4 * settings.cores
    for number in range(files):
        rows = settings.rows // files + (number < settings.rows % files)
        table = batch(generator, rows, settings.keys)
        group = max(-(-rows // ROW_GROUPS), 1)
        pq.write_table(table, f"{path}/rows-{number:02d}.parquet", row_group_size=group)


@dataset("second")
def make_second(settings: Settings, path: str) -> None:
    """Write the smaller side of the join: every key once, with a weight."""
    os.makedirs(path)
    generator = np.random.default_rng(SEED + 1)
    keys = np.array_split(generator.permutation(settings.keys), settings.cores)
    for number, part in enumerate(keys):
        table = pa.table({"k": part, "w": generator.random(len(part))})
        pq.write_table(table, f"{path}/keys-{number:02d}.parquet")


def lookup_keys(settings: Settings) -> list[int]:
    """Return existing keys, one for each run, the same ones for all contenders."""
    first = pq.ParquetFile(f"{settings.path('input')}/rows-00.parquet")
    runs = (settings.warm_up + settings.rounds) * RUNS_A_TURN
    return first.read_row_group(0, columns=["k"])["k"].slice(0, runs).to_pylist()


if __name__ == "__main__":
    serve()
