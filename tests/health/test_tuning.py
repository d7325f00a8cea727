"""Checks of the settings that ffq_spark sets: tuning, redaction, plugin, jar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from health_scene import GOOD, flagged

from ffq_spark import conf
from ffq_spark.conf import SOCKET_DIR, SOCKETS
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts


def test_the_plugin_sets_what_is_missing_before_a_session_starts_and_not_after() -> None:
    without: dict[str, Any] = dict.fromkeys(conf.FAST)
    assert flagged(**without) == set()
    assert flagged(running=True, **without) == set(conf.FAST)
    assert flagged(spark="4.2.1", **without) == {*conf.FAST, "Spark"}


def test_patterns_that_do_not_hide_storage_options_are_found() -> None:
    options, all_names = "spark.sql.redaction.options.regex", "spark.redaction.regex"
    assert flagged(**{options: "(?i)url", all_names: "(?i)secret"}) == {options, all_names}
    assert flagged(**{options: "(?i)url|storage", all_names: "."}) == set()
    assert flagged(**{all_names: "*********(redacted)"}) == set()  # as the REST service returns it
    assert flagged(**{options: "*"}) == {options}  # not a valid pattern in Python, and without ours


def test_the_extension_alone_is_not_the_plugin() -> None:
    assert flagged(spark__plugins="org.other.Plugin") == {"spark.plugins"}
    assert flagged(spark__plugins=f"org.other.Plugin, {conf.BRIDGE['spark.plugins']}") == set()


def test_sockets_that_cannot_work_are_found_on_and_off() -> None:
    on = list(check(Facts({**GOOD, "spark.master": "yarn", "spark.executor.memoryOverhead": "1g"})))
    assert [finding.setting for finding in on] == [SOCKET_DIR]
    assert "every Python task fails" in on[0].cost
    off = {
        **GOOD,
        SOCKETS: "false",
        "spark.executor.extraJavaOptions": "-Djava.io.tmpdir=/" + "t" * 61,
    }
    (finding,) = check(Facts(off))
    assert finding.setting == SOCKETS and SOCKET_DIR in finding.remedy
    assert list(check(Facts({**off, SOCKETS: "true", SOCKET_DIR: "/tmp"}))) == []


def test_the_jar_must_be_there_and_be_ours(tmp_path: Path) -> None:
    other = tmp_path / "ffq-spark.jar"
    assert flagged(spark__jars="") == {"spark.jars"}
    assert flagged(spark__jars=str(other)) == {"spark.jars"}
    other.write_bytes(b"something else")
    assert flagged(spark__jars=f"/x/y.jar,file:{other}") == {"spark.jars"}
    other.write_bytes(Path(conf.jar_path()).read_bytes())
    assert flagged(spark__jars=f"/x/y.jar,file:{other}") == set()
    assert flagged(spark__jars="s3a://somewhere/ffq-spark.jar") == set()
    assert flagged(spark__jars="", running=True) == set()
