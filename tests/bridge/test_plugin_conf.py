"""The plugin, set by two flags of spark-submit, applies the recommended settings to a plain job."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ffq_spark.conf import BRIDGE, FAST, REDACTION, jar_path

pytestmark = pytest.mark.spark

(SOCKETS,) = FAST
HERE = Path(__file__).parent


def submit(master: str, **conf: str) -> dict[str, Any]:
    """Run conf_app.py with the plugin and these settings, and return its output."""
    own = {"spark.jars": jar_path(), "spark.plugins": BRIDGE["spark.plugins"]}
    quiet = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    settings = {**own, **quiet, **conf}
    command = [str(Path(sys.executable).with_name("spark-submit")), f"--master={master}"]
    command += [f"--conf={name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [*command, str(HERE / "conf_app.py")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("facts "))
    facts: dict[str, Any] = json.loads(line.removeprefix("facts "))
    assert facts["accumulated"] == 6
    return facts


def test_the_settings_are_in_force_in_sessions_in_executors_and_in_pyspark() -> None:
    facts = submit("local-cluster[2,1,1024]")
    assert facts["conf"] == {
        **FAST,
        "spark.sql.extensions": BRIDGE["spark.sql.extensions"],
        "spark.redaction.regex": REDACTION["spark.redaction.regex"],
        # Settings that would affect the user's own Python jobs stay unset.
        "spark.sql.execution.arrow.maxBytesPerBatch": None,
        "spark.sql.python.filterPushdown.enabled": None,
    }
    assert (facts["workers"], facts["driver_socket"]) == (["True"], "unix")


def test_what_the_user_has_set_stays_and_sockets_with_long_paths_are_left_off(
    tmp_path: Path,
) -> None:
    """With Unix sockets, this job would fail: `AF_UNIX path too long`."""
    place = tmp_path / ("x" * 90)
    place.mkdir()
    own = "spark.redaction.regex"
    options = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={place}", own: "(?i)mine"}
    facts = submit("local[1]", **options)
    assert facts["conf"][own] == "(?i)mine"
    assert facts["conf"][SOCKETS] in (None, "false")
    assert (facts["workers"], facts["driver_socket"]) == (["False"], "tcp")


def test_the_jar_holds_the_declared_settings() -> None:
    with zipfile.ZipFile(jar_path()) as jar:
        lines = jar.read("io/ffq/spark/defaults.properties").decode().splitlines()
    assert dict(line.split("=", 1) for line in lines) == {**FAST, **REDACTION}
