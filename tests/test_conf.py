"""The settings that ffq_spark recommends, and the files that Spark reads them from."""

from __future__ import annotations

from pathlib import Path

from ffq_spark import conf


def test_properties_are_read_as_spark_does(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text("# x 1\n! y 2\n\na.b  c d\n e=f=g\nh : i\nj\n")
    assert conf.read_properties(file) == {"a.b": "c d", "e": "f=g", "h": "i", "j": ""}
