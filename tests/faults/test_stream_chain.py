"""A chain of streams whose driver is killed again and again: every row arrives exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import Place
from fault_rows import batch_of, rows_of, table_rows
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches

pytestmark = pytest.mark.spark

APPLICATION = Path(__file__).with_name("fault_chain_app.py")
LINKS = (("first", "second"), ("second", "third"))
ROWS = 12

# A JVM spends most of its start on loading classes, so the first one archives its classes for the
# others.
JAVA = f"{os.environ['JDK_JAVA_OPTIONS']} -Xlog:disable"
CATCHING_UP_SECONDS = 12


class Chain:
    """A chain of streams: its directory, its driver, and the rows that must arrive."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.choose = random.Random(seed)
        self.classes = folder / "classes.jsa"
        self.log = folder / "driver.log"
        self.tags = 0
        self.replays = 0
        self.early_kills = 0

    def feed(self, count: int) -> None:
        """Append steps to the first exchange, each with its own tag."""
        options = write_options(keys=("k",), partitions=2)
        for _ in range(count):
            batch = batch_of(self.tags)
            write_batches(str(self.folder / "first"), [batch], options=options)
            self.tags += 1

    def start(self, how: str) -> subprocess.Popen[str]:
        keeping = "SharedArchiveFile" if self.classes.exists() else "ArchiveClassesAtExit"
        with self.log.open("w") as log:
            return subprocess.Popen(
                [sys.executable, str(APPLICATION), str(self.folder), how],
                env={**os.environ, "JDK_JAVA_OPTIONS": f"{JAVA} -XX:{keeping}={self.classes}"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def last_words(self) -> str:
        """Return the end of what the last driver wrote to its standard error."""
        return self.log.read_text(errors="replace")[-4000:]

    def run_and_kill(self) -> None:
        """Start the driver, let it work for a moment, and kill it with all processes it started.

        In half of the runs, on average, it dies before it has processed the earlier steps.
        """
        driver = self.start("forever")
        assert driver.stdout
        assert driver.stdout.readline() == "started\n"
        if self.choose.random() < 0.5:
            self.early_kills += 1
            time.sleep(self.choose.random() * CATCHING_UP_SECONDS)
        else:
            while driver.stdout.readline() != "ready\n":
                assert driver.poll() is None, self.last_words()
            self.feed(self.choose.randrange(1, 4))
            time.sleep(self.choose.random() * 1.5)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()

    def forget_commits(self) -> None:
        """Delete the newest commit of some Spark checkpoints: Spark runs the batch again."""
        for _, target in LINKS:
            folder = self.folder / "checkpoints" / target / "commits"
            names = [int(p.name) for p in folder.glob("*") if p.name.isdigit()]
            if names and self.choose.random() < 0.5:
                for path in folder.glob(f"*{max(names)}*"):
                    path.unlink()
                self.replays += 1

    def drain(self) -> None:
        driver = self.start("once")
        driver.communicate(timeout=300)
        assert driver.returncode == 0, self.last_words()

    def check(self) -> None:
        """Check that every row arrived once, and that each step has the rows of its offsets."""
        expected = rows_of(range(self.tags), ROWS)
        for source, target in LINKS:
            exchange, origin = self.exchange(target), self.exchange(source)
            assert table_rows(exchange.read().read_all()) == expected
            for number, step in enumerate(exchange.steps()):
                stream, offsets = step.body.stream, step.body.offsets
                assert stream is not None and offsets is not None
                assert (stream.stream, stream.batch) == (target, number)
                start = json.loads(offsets.start[0])["step"] if offsets.start else 0
                end = json.loads(offsets.end[0])["step"]
                derived = table_rows(origin.read(steps=f"{start + 1}..{end}").read_all())
                assert table_rows(exchange.read(steps=step.step).read_all()) == derived
            assert exchange.verify().ok

    def exchange(self, name: str) -> Exchange:
        return Exchange(Place(str(self.folder / name)).root)


def campaign(folder: Path, kills: int, seed: int) -> Chain:
    chain = Chain(folder, seed)
    chain.feed(2)
    # Spark refuses a checkpoint if it was killed while it recorded the very first batch.
    chain.drain()
    for _ in range(kills):
        chain.run_and_kill()
        chain.forget_commits()
    chain.drain()
    chain.check()
    return chain


def test_a_chain_of_streams_survives_its_driver(tmp_path: Path) -> None:
    campaign(tmp_path, kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_a_chain_of_streams_survives_100_kills(tmp_path: Path, seed: int) -> None:
    chain = campaign(tmp_path, kills=100, seed=seed)
    ends = Counter(
        status.state.name for _, target in LINKS for status in chain.exchange(target).status()
    )
    print(f"{chain.tags} steps, {chain.replays} commits removed, {chain.early_kills} early kills")
    print(f"queries: {dict(ends)}")
    assert chain.replays > 25
