"""Build the jar from the Scala sources, with the compiler inside the PySpark wheel.

    python jars/build.py [TARGET]

A JRE is enough. The result depends only on the sources, the settings and options that Python
declares, and the PySpark version, so that a test can build it again and compare.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ffq_spark import errors
from ffq_spark.conf import FAST, REDACTION
from ffq_spark.options import WriteOptions, known_names, session_options
from ffq_spark.shared_names import OBJECTS, constants

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "ffq_spark" / "jars" / "ffq-spark.jar"
# Settings that the plugin sets unless the user has; ffq_spark/conf.py declares them.
SETTINGS = "io/ffq/spark/defaults.properties"
# All names below `spark.ffq.`. The value is `write` if the plugin adds it to a write's options.
OPTIONS = "io/ffq/spark/options.properties"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    build(target)
    print(f"{target}: {target.stat().st_size} bytes")


def build(target: Path) -> None:
    """Compile all sources and pack the classes and the properties files into a jar."""
    sources = sorted((HERE / "src").rglob("*.scala"))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as generated:
        shared = Path(generated, "Shared.scala")
        shared.write_text(shared_source())
        _compile([*sources, shared], folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        _pack(Path(folder), target)


def shared_source() -> str:
    """The Scala source of the names that both languages use, from their declaration in Python.

    >>> "final val Misplaced = \\"FFQ_MISPLACED\\"" in shared_source()
    True
    """
    objects = {names.__name__: constants(names) for names in OBJECTS}
    codes = (error.code for error in errors.every_error())
    objects["ErrorCode"] = {code.removeprefix("FFQ_"): code for code in codes}
    lines = ["package io.ffq.spark", "", "private[spark] object Shared {"]
    for name, values in objects.items():
        lines.append(f"  object {name} {{")
        lines += [f"    final val {_scala(key)} = {json.dumps(values[key])}" for key in values]
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _scala(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _compile(sources: list[Path], folder: str) -> None:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(java) is None:
        sys.exit("Building the jar needs Java 17 or newer: install it, or set JAVA_HOME.")
    command = [java, "-cp", f"{jars}/*", "scala.tools.nsc.Main", "-usejavacp"]
    warnings = ["-deprecation", "-feature", "-Wunused:imports", "-Xfatal-warnings"]
    flags = ["-release", "17", *warnings, "-d", folder]
    subprocess.run([*command, *flags, *map(str, sources)], check=True)


def _pack(folder: Path, target: Path) -> None:
    entries = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n"}
    entries[SETTINGS] = _properties({**FAST, **REDACTION})
    written = session_options(WriteOptions)
    entries[OPTIONS] = _properties({n: "write" if n in written else "" for n in known_names()})
    for path in folder.rglob("*.class"):
        entries[path.relative_to(folder).as_posix()] = path.read_bytes()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as jar:
        for name in sorted(entries):
            jar.writestr(zipfile.ZipInfo(name, _EPOCH), entries[name])


def _properties(values: dict[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()


if __name__ == "__main__":
    main()
