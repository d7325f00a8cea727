"""The verbs that set Spark up: jar, conf."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from command_line import run

from ffq_spark import conf


def test_jar_is_the_file_that_holds_the_classes_that_conf_names() -> None:
    path = Path(run("jar").stdout.strip())
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    for name in conf.BRIDGE.values():
        assert name.replace(".", "/") + ".class" in names


def test_conf_says_the_same_in_every_format() -> None:
    settings = json.loads(run("conf", "--format", "json").stdout)
    assert settings == conf.flags() and settings["spark.jars"] == run("jar").stdout.strip()
    lines = run("conf").stdout.splitlines()
    assert lines == [f"--conf {name}={value}" for name, value in settings.items()]
    lines = run("conf", "--format", "properties").stdout.splitlines()
    assert dict(line.split(" ", 1) for line in lines) == settings
