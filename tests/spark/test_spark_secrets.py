"""No plan, log, error, event log or file contains a secret of the storage options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import s3fs

from ffq_spark.conf import REDACTION, STORAGE_NAMES

pytestmark = pytest.mark.spark

APP = Path(__file__).with_name("secrets_app.py")
WRONG = "Zebra-Quartz-7719"


def run(s3: Any, tmp_path: Path, plugin: bool) -> str:
    """Run the application; return everything that it printed and logged."""
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.logConf": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_everything(tmp_path)}",
        # Settings of the application are also in each job's properties.
        **{f"spark.ffq.{name}": value for name, value in s3.spark_options.items()},
    }
    given = {
        "conf": conf,
        "plugin": plugin,
        "root": f"s3://{s3.bucket}/{tmp_path.name}",
        "options": s3.spark_options,
        "wrong": {"storage.secret": WRONG},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    done = subprocess.run(
        [sys.executable, "-u", str(APP)],
        input=json.dumps(given).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        timeout=540,
    )
    printed = done.stdout.decode(errors="replace")
    assert done.returncode == 0, printed[-3000:]
    return printed


def _log_everything(directory: Path) -> Path:
    path = directory / "log4j2.properties"
    path.write_text(
        "rootLogger.level = info\n"
        "rootLogger.appenderRef.stderr.ref = console\n"
        # If Python starts the JVM, Spark sets the root's level to the level of this logger.
        "logger.python.name = org.apache.spark.api.python.PythonGatewayServer\n"
        "logger.python.level = info\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %p %c: %m%n%ex\n"
    )
    return path


@pytest.mark.parametrize("plugin", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_the_secrets_of_an_application_are_found_nowhere(
    s3: Any, tmp_path: Path, plugin: bool
) -> None:
    printed = run(s3, tmp_path, plugin)
    assert "rows 100" in printed and "INFO org.apache.spark" in printed
    assert "spark.ffq.storage.key" in printed
    if plugin:
        assert printed.count("FFQ_STORE_FAILED") >= 2 and "FFQ_UNKNOWN_OPTION" in printed
    texts = {"the output": printed}
    for path in tmp_path.rglob("*"):
        if path.is_file():
            texts[str(path.relative_to(tmp_path))] = path.read_bytes().decode("latin-1")
    events = [text for name, text in texts.items() if name.startswith("events/")]
    assert "storage.key" in "".join(events) and "SQLExecutionStart" in "".join(events)
    assert not plugin or any(name.startswith("checkpoint/offsets/") for name in texts)
    bucket = s3fs.S3FileSystem(**s3.storage_options, skip_instance_cache=True)
    for name in bucket.find(f"{s3.bucket}", prefix=tmp_path.name):
        texts[name] = bucket.cat_file(name).decode("latin-1")
    assert sum("/_ffq/" in name for name in texts) > 5
    for secret in (s3.key, s3.secret, WRONG):
        leaks = {name: _around(text, secret) for name, text in texts.items() if secret in text}
        assert leaks == {}


def _around(text: str, secret: str) -> str:
    place = text.index(secret)
    return text[max(0, place - 200) : place + 50]


def test_the_pattern_still_has_all_that_sparks_own_has(spark: Any) -> None:
    settings = getattr(getattr(spark._jvm.org.apache.spark.internal.config, "package$"), "MODULE$")
    own = settings.SECRET_REDACTION_PATTERN().defaultValueString()
    assert REDACTION["spark.redaction.regex"].startswith(f"{own}|")
    assert spark.conf.get("spark.redaction.regex") == REDACTION["spark.redaction.regex"]


@pytest.mark.parametrize(
    ("own", "joined"), [("(?i)mine", f"(?i)mine|{STORAGE_NAMES}"), ("(?i)key", "(?i)key")]
)
def test_a_users_own_pattern_is_joined_unless_it_hides_as_much(own: str, joined: str) -> None:
    from pyspark.sql import SparkSession

    import ffq_spark as ffq

    builder = SparkSession.Builder().config("spark.redaction.regex", own)
    options = ffq.configure(builder, plugin=False)._options
    assert options["spark.redaction.regex"] == joined
    name = "spark.sql.redaction.options.regex"
    assert options[name] == REDACTION[name]
