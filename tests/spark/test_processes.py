"""Sessions that need their own process: Spark Connect, spark-submit, a defaults file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from spark_rows import files

import ffq_spark
from ffq_spark import Exchange
from ffq_spark.conf import BRIDGE, STORAGE_NAMES, jar_path

pytestmark = pytest.mark.spark

REPOSITORY = Path(ffq_spark.__file__).parent.parent

# The first lines of every script; the last line of a script's output is its result.
PREAMBLE = """
import json, sys
from pyspark.sql import SparkSession
import ffq_spark as ffq

def local(builder):
    return (builder.config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1"))

def round_trip(spark, root, **options):
    df = spark.range(0, 100).selectExpr("id", "id % 17 AS k")
    writer = df.write.format("ffqshuffle").mode("append").options(keys="k", partitions=4, **options)
    writer.save(root)
    exchange = spark.read.format("ffqshuffle").load(root)
    return sorted(row.id for row in exchange.where("k = 5").collect())

def answer(**values):
    print(json.dumps(values))
"""

WANTED = [i for i in range(100) if i % 17 == 5]


def run(command: list[str], script: str, directory: Path, **environment: str) -> dict[str, Any]:
    """Run a script in its own process and return its result."""
    path = directory / "script.py"
    path.write_text(PREAMBLE + script)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*command, str(path)],
        cwd=directory,
        env={**inherited, **own, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answered: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answered


def test_a_connect_session_writes_and_reads(tmp_path: Path) -> None:
    """A Connect client, without a JVM, uses the source by name, and its conf after `register`."""
    roots = [str(tmp_path / name) for name in ("by_name", "registered")]
    script = f"""
spark = local(SparkSession.builder.remote("local[2]")).getOrCreate()
by_name = round_trip(spark, {roots[0]!r})
spark.conf.set("spark.ffq.payload", "ffqs")
ffq.register(spark)
registered = round_trip(spark, {roots[1]!r})
try:
    spark.read.format("ffqshuffle").option("step", 1).load({roots[0]!r}).schema
    error = ""
except Exception as raised:
    error = str(raised)
answer(kind=type(spark).__module__, by_name=by_name, registered=registered, error=error)
spark.stop()
"""
    answered = run([sys.executable], script, tmp_path)
    assert "connect" in answered["kind"]
    assert answered["by_name"] == answered["registered"] == WANTED
    assert "FFQ_UNKNOWN_OPTION" in answered["error"]
    payloads = [_heads(root) == {b"FFQS"} for root in roots]
    assert payloads == [False, True]


def test_a_connect_session_keeps_a_snapshot_by_its_number(tmp_path: Path) -> None:
    """A Connect client sends nothing at `load`, and its server keeps few resolved plans."""
    root = str(tmp_path / "exchange")
    script = f"""
spark = local(SparkSession.builder.remote("local[1]")).getOrCreate()
def add():
    spark.range(3).write.format("ffqshuffle").mode("append").save({root!r})
add()
late = spark.read.format("ffqshuffle").load({root!r})
fixed = spark.read.format("ffqshuffle").option("asOfStep", 1).load({root!r})
add()
counts = [late.count(), fixed.count()]
add()
cached = late.count()
spark.conf.set("spark.connect.session.planCache.enabled", "false")
answer(counts=counts, cached=cached, later=[late.count(), fixed.count()])
spark.stop()
"""
    answered = run([sys.executable], script, tmp_path)
    assert answered == {"counts": [6, 3], "cached": 6, "later": [9, 3]}


def _heads(root: str) -> set[bytes]:
    names = [name for name in files(root, "shuffle") if name.endswith(".ipc")]
    assert names
    return {Path(root, name).read_bytes()[:4] for name in names}


def test_configure_sets_only_what_the_user_has_not(tmp_path: Path) -> None:
    """`configure` keeps the settings of the builder and of spark-defaults.conf.

    The same session shows that `FFQ_*` variables have effect, and that options override them.
    """
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(
        "# a comment\n"
        "spark.sql.redaction.options.regex   (?i)mine\n"
        "spark.ui.showConsoleProgress=false\n"
    )
    roots = [str(tmp_path / name) for name in ("environment", "option")]
    script = f"""
builder = local(SparkSession.builder.master("local[2]"))
builder = builder.config("spark.python.unix.domain.socket.enabled", "false")
spark = ffq.configure(builder).getOrCreate()
names = ["spark.sql.redaction.options.regex", *ffq.recommended_conf()]
answer(conf={{name: spark.conf.get(name) for name in names}},
       by_environment=round_trip(spark, {roots[0]!r}),
       by_option=round_trip(spark, {roots[1]!r}, payload="arrow"))
spark.stop()
"""
    environment = {"SPARK_CONF_DIR": str(settings), "FFQ_PAYLOAD": "ffqs"}
    answered = run([sys.executable], script, tmp_path, **environment)
    assert answered["conf"] == {
        "spark.sql.redaction.options.regex": f"(?i)mine|{STORAGE_NAMES}",
        "spark.python.unix.domain.socket.enabled": "false",
    }
    assert answered["by_environment"] == answered["by_option"] == WANTED
    assert _heads(roots[0]) == {b"FFQS"}
    assert b"FFQS" not in _heads(roots[1])


def spark_submit() -> list[str]:
    import pyspark

    return [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]


def python_without_the_package(directory: Path) -> str:
    """Make an interpreter that can import everything installed here except this package."""
    home = directory / "python"
    venv.create(home, with_pip=False, symlinks=True)
    target = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(home)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        ours = "ffq" in entry.name.lower() or entry.suffix in (".pth", ".egg-link")
        if not ours and entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry)
    interpreter = str(home / "bin" / "python")
    probe = "import pyspark, pyarrow, importlib.util as u; print(u.find_spec('ffq_spark'))"
    seen = subprocess.check_output([interpreter, "-I", "-c", probe], text=True)
    assert seen.strip() == "None"
    return interpreter


def package_zip(directory: Path) -> Path:
    path = directory / "ffq_spark.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(REPOSITORY / "pyspark_ffqshuffle.py", "pyspark_ffqshuffle.py")
        for source in sorted((REPOSITORY / "ffq_spark").rglob("*.py")):
            archive.write(source, str(source.relative_to(REPOSITORY)))
    return path


def test_a_zip_of_the_package_is_enough(tmp_path: Path) -> None:
    """The package need not be installed on driver or workers if `register` is called."""
    interpreter, archive = python_without_the_package(tmp_path), package_zip(tmp_path)
    root = str(tmp_path / "exchange")
    script = f"""
spark = local(SparkSession.builder).getOrCreate()
ffq.register(spark)
answer(ids=round_trip(spark, {root!r}), file=ffq.__file__)
spark.stop()
"""
    command = [*spark_submit(), "--py-files", str(archive)]
    pythons = {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    answered = run(command, script, tmp_path, **pythons, PYTHONPATH="")
    assert answered["ids"] == WANTED
    assert str(REPOSITORY) not in answered["file"]
    assert "ffq_spark.zip" in answered["file"]


def test_the_steward_finds_the_package_in_the_zip(tmp_path: Path) -> None:
    """The driver's JVM starts the steward, and has no PYTHONPATH of the zip's."""
    interpreter, archive = python_without_the_package(tmp_path), package_zip(tmp_path)
    root = str(tmp_path / "exchange")
    script = f"""
spark = local(SparkSession.builder).getOrCreate()
ffq.register(spark)
answer(found=round_trip(spark, {root!r}))
spark.stop()
"""
    plugin = [
        f"--conf={name}={value}" for name, value in {**BRIDGE, "spark.jars": jar_path()}.items()
    ]
    command = [*spark_submit(), *plugin, "--py-files", str(archive)]
    pythons = {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    assert run(command, script, tmp_path, **pythons, PYTHONPATH="")["found"] == WANTED
    assert {a.task.state for a in Exchange(root).attempts() if a.task} == {"SUCCESS"}


def test_configure_works_where_spark_submit_started_the_jvm(tmp_path: Path) -> None:
    """spark-submit has started the JVM: `configure` adds no jar and keeps the given settings."""
    given = "spark.python.unix.domain.socket.enabled"
    root = str(tmp_path / "exchange")
    script = f"""
spark = ffq.configure(local(SparkSession.builder)).getOrCreate()
answer(conf={{name: spark.conf.get(name) for name in ffq.recommended_conf()}},
       ids=round_trip(spark, {root!r}))
spark.stop()
"""
    answered = run([*spark_submit(), "--conf", f"{given}=false"], script, tmp_path)
    assert answered["ids"] == WANTED
    assert answered["conf"] == {given: "false"}
