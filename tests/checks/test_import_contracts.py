"""`make check` finds imports that the contracts in setup.cfg do not allow."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
EXCHANGE = "ffq_spark.exchange"
PACKAGES = ("attempts", "compute", "ledger", "maintenance", "read", "scan", "write")


def read_contracts() -> ConfigParser:
    config = ConfigParser(interpolation=None)
    config.read(TOP / "setup.cfg")
    return config


def modules_of(contract: str, setting: str) -> set[str]:
    """Return the modules that a setting of a contract lists."""
    return set(read_contracts()[f"importlinter:contract:{contract}"][setting].split())


def children(package: str) -> set[str]:
    """Return the packages and modules directly in a package."""
    directory = TOP.joinpath(*package.split("."))
    modules = [path.stem for path in directory.glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.name for path in directory.glob("*/__init__.py")]
    return {f"{package}.{name}" for name in (*modules, *packages)}


@pytest.mark.parametrize(
    ("importer", "imported", "contract", "keeps"),
    [
        pytest.param("cli", "exchange.maintenance", "maintenance", True, id="listed importer"),
        pytest.param("cli", "exchange.ledger", "ledger", False, id="past the exchange"),
        pytest.param("health", "exchange.write", "write", False, id="another layer"),
        pytest.param("service.client", "exchange.read", "read", False, id="the client"),
        pytest.param("service.wire", "exchange.compute", "compute", False, id="the messages"),
        pytest.param("exchange.cut", "exchange.scan", "scan", False, id="within the exchange"),
        pytest.param("exchange.catalog", "exchange.attempts", "attempts", False, id="a module"),
        pytest.param("conf", "pyspark", "spark", False, id="pyspark"),
        pytest.param("spark", "pyspark", "spark", True, id="pyspark in its package"),
        pytest.param("options", "fsspec", "fsspec", False, id="fsspec"),
        pytest.param("store", "fsspec", "fsspec", True, id="fsspec in its package"),
    ],
)
def test_a_contract_finds_an_import_that_it_does_not_allow(
    tmp_path: Path, importer: str, imported: str, contract: str, keeps: bool
) -> None:
    """Run one contract of setup.cfg on a package of empty modules with a single import."""
    names = [name.split(".") for name in (*children("ffq_spark"), *children(EXCHANGE))]
    names += [["ffq_spark", "service", part] for part in ("auth", "client", "server", "statements")]
    names += [["ffq_spark", "service", "wire"]]
    for name in names:
        (tmp_path / Path(*name)).mkdir(parents=True, exist_ok=True)
        for depth in range(1, len(name) + 1):
            (tmp_path / Path(*name[:depth]) / "__init__.py").touch()
    target = imported if imported in ("pyspark", "fsspec") else f"ffq_spark.{imported}"
    module = tmp_path / Path("ffq_spark", *importer.split("."), "__init__.py")
    module.write_text(f"import {target}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    command += ["--config", str(TOP / "setup.cfg"), "--contract", contract]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    # A check that could not run must not count as one that found an import.
    assert ("1 kept" if keeps else "1 broken") in done.stdout, done.stdout + done.stderr
    assert (done.returncode == 0) == keeps


@pytest.mark.parametrize(("contract", "only"), [("spark", "spark"), ("fsspec", "store")])
def test_all_packages_but_one_are_kept_from_a_library(contract: str, only: str) -> None:
    others = children("ffq_spark") - {f"ffq_spark.{only}"}
    assert modules_of(contract, "source_modules") == others


def test_each_package_of_the_exchange_lists_its_importers() -> None:
    packages = {f"{EXCHANGE}.{name}" for name in PACKAGES}
    modules = {f"{EXCHANGE}.{name}" for name in ("catalog", "cut", "exchange")}
    assert children(EXCHANGE) == packages | modules
    for name in PACKAGES:
        assert modules_of(name, "protected_modules") == {f"{EXCHANGE}.{name}"}
