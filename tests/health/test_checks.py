"""What the checks find in a session's facts: every finding, and silence where all is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ffq_spark import conf
from ffq_spark.conf import SOCKET_DIR, SOCKETS
from ffq_spark.errors import BadOption, NoAnswer
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts
from ffq_spark.health.installed import check_packages, check_room, check_storage
from ffq_spark.health.planned import planned
from ffq_spark.health.rest import running

ARROW = "spark.sql.execution.arrow.maxBytesPerBatch"
GOOD = {"spark.master": "local[2]", **conf.flags()}
FOUR = {"spark.executor.cores": "4"}
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def found(
    *, running: bool = False, spark: str = "4.3.0", java: str = "17.0.9", **own: str
) -> set[str]:
    """The settings with findings; `__` in a keyword stands for a dot, None takes a setting away."""
    settings = {**GOOD, **{name.replace("__", "."): value for name, value in own.items()}}
    known = {name: value for name, value in settings.items() if value is not None}
    return {finding.setting for finding in check(Facts(known, spark, java, running))}


def test_the_recommended_flags_leave_nothing_to_find() -> None:
    assert found() == found(running=True) == set()


def test_an_empty_session_lacks_all() -> None:
    lacking = {finding.setting for finding in check(Facts())}
    assert lacking == {*conf.FAST, *conf.BRIDGE, *conf.REDACTION}


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        (ARROW, "64MB", False),
        (ARROW, "2147483647b", True),
        (ARROW, "nonsense", False),
        (SOCKETS, "false", True),
        (SOCKETS, "TRUE", False),
        ("spark.python.worker.reuse", "false", True),
        ("spark.python.worker.reuse", "true", False),
        ("spark.ffq.verify", "counts", False),
        ("spark.ffq.LAYOUT", "packed", False),
        ("spark.ffq.storage.key", "any", False),
        ("spark.ffq.cleanup.ttl", "1d", False),
        ("spark.ffq.partitions", "8", True),
        ("spark.ffq.serverCredits", "1g", True),
        ("spark.ffq.verfy", "counts", True),
        ("spark.speculation", "true", False),
    ],
)
def test_a_value_is_judged(name: str, value: str, wrong: bool) -> None:
    assert found(**{name: value}) == ({name} if wrong else set())


@pytest.mark.parametrize(
    ("rows", "wrong"), [("0", True), ("100", True), ("2000000", True), ("50000", False)]
)
def test_the_rows_of_a_batch_matter_where_the_plugin_does_not_make_it(
    rows: str, wrong: bool
) -> None:
    assert found(**{ROWS: rows}) == set()
    assert found(**{ROWS: rows}, spark="4.2.1") == ({"Spark", ROWS} if wrong else {"Spark"})


def test_a_misspelt_setting_is_found_with_its_likely_name_and_without_its_value() -> None:
    (finding,) = check(Facts({**GOOD, "spark.ffq.storge.secret": "hidden"}, "4.3.0", "17.0.9"))
    assert finding.setting == "spark.ffq.storge.secret" and "hidden" not in repr(finding)
    (finding,) = check(Facts({**GOOD, "spark.ffq.verfy": "counts"}, "4.3.0", "17.0.9"))
    assert (finding.wanted, finding.remedy) == ("spark.ffq.verify", "use spark.ffq.verify")


def test_the_plugin_sets_what_is_missing_before_a_session_starts_and_not_after() -> None:
    without: dict[str, Any] = dict.fromkeys(conf.FAST)
    assert found(**without) == set()
    assert found(running=True, **without) == set(conf.FAST)
    assert found(spark="4.2.1", **without) == {*conf.FAST, "Spark"}


def test_patterns_that_do_not_hide_storage_options_are_found() -> None:
    options, all_names = "spark.sql.redaction.options.regex", "spark.redaction.regex"
    assert found(**{options: "(?i)url", all_names: "(?i)secret"}) == {options, all_names}
    assert found(**{options: "(?i)url|storage", all_names: "."}) == set()
    assert found(**{all_names: "*********(redacted)"}) == set()  # as the REST service tells it
    assert found(**{options: "*"}) == {options}  # no pattern to Python, and none that has ours


def test_the_extension_alone_is_not_the_plugin() -> None:
    assert found(spark__plugins="org.other.Plugin") == {"spark.plugins"}
    assert found(spark__plugins=f"org.other.Plugin, {conf.BRIDGE['spark.plugins']}") == set()


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


def test_the_environment_decides_about_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SOCKETS in conf.fast({})
    monkeypatch.setenv("PYSPARK_UDS_MODE", "false")
    assert SOCKETS not in conf.fast({})
    assert planned({}).settings[SOCKETS] == "false"


def test_the_jar_must_be_there_and_be_ours(tmp_path: Path) -> None:
    other = tmp_path / "ffq-spark.jar"
    assert found(spark__jars="") == {"spark.jars"}
    assert found(spark__jars=str(other)) == {"spark.jars"}
    other.write_bytes(b"something else")
    assert found(spark__jars=f"/x/y.jar,file:{other}") == {"spark.jars"}
    other.write_bytes(Path(conf.jar_path()).read_bytes())
    assert found(spark__jars=f"/x/y.jar,file:{other}") == set()
    assert found(spark__jars="s3a://somewhere/ffq-spark.jar") == set()
    assert found(spark__jars="", running=True) == set()


@pytest.mark.parametrize(
    ("settings", "short"),
    [
        ({"spark.master": "yarn"}, True),
        ({"spark.master": "yarn", "spark.executor.memory": "5200m"}, False),
        ({"spark.master": "yarn", **FOUR, "spark.executor.memory": "5200m"}, True),
        (
            {
                "spark.master": "yarn",
                **FOUR,
                "spark.executor.memory": "5200m",
                "spark.task.cpus": "4",
            },
            False,
        ),
        (
            {"spark.master": "yarn", **FOUR, "spark.executor.memory": "20g"},
            False,
        ),
        (
            {"spark.master": "k8s://h", **FOUR, "spark.executor.memory": "6g"},
            False,
        ),
        ({"spark.master": "k8s://h", **FOUR, "spark.executor.memory": "4g"}, True),
        ({"spark.master": "yarn", "spark.executor.memoryOverhead": "200"}, True),
        ({"spark.master": "spark://h:7077", **FOUR}, False),
        ({"spark.master": "yarn", "spark.ffq.maxBufferBytes": "1g"}, True),
        ({"spark.executor.pyspark.memory": "1000m"}, True),
        ({"spark.executor.pyspark.memory": "1g"}, False),
    ],
)
def test_memory_beside_the_heap_is_for_the_buffers_of_all_cores(
    settings: dict[str, str], short: bool
) -> None:
    findings = check(Facts({**GOOD, SOCKET_DIR: "/tmp", **settings}))
    assert [("emory" in finding.setting) for finding in findings] == [True] * short


def test_versions_are_compared() -> None:
    assert found(java="11.0.2") == {"Java"} and found(java="21") == set()
    good = {"pyspark": "4.3.0", "pyarrow": "18.0.0", "pandas": "2.2.3"}
    assert list(check_packages(good)) == list(check_packages({**good, "pandas": ""})) == []
    assert [f.setting for f in check_packages({**good, "pandas": "3.0.1"})] == ["pandas"]
    assert [f.setting for f in check_packages({"pyarrow": "9.0"})] == ["pyspark", "pyarrow"]


def test_spilling_needs_room_for_one_buffer_each() -> None:
    facts = Facts({"spark.master": "local[2]"})
    assert list(check_room(facts, "/tmp", 512 << 20)) == []
    assert [f.setting for f in check_room(facts, "/tmp", (512 << 20) - 1)] == ["/tmp"]


def test_a_storage_without_a_client_is_found() -> None:
    assert list(check_storage("s3://bucket/x")) == list(check_storage("/data/x")) == []
    assert [f.setting for f in check_storage("nosuch://bucket/x")] == ["storage"]


def test_properties_are_read_as_spark_does(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text("# x 1\n! y 2\n\na.b  c d\n e=f=g\nh : i\nj\n")
    assert conf.read_properties(file) == {"a.b": "c d", "e": "f=g", "h": "i", "j": ""}


def test_an_address_that_is_none_or_does_not_answer_is_an_error() -> None:
    with pytest.raises(BadOption):
        running("file:///etc/passwd")
    with pytest.raises(NoAnswer):
        running("http://127.0.0.1:1")


@pytest.mark.parametrize("url", ["http://u:PW@127.0.0.1:1", "htp//u:PW@host", "http://u:P@W@host"])
def test_a_login_in_the_address_of_an_application_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadOption) as caught:
        running(url)
    assert "PW" not in str(caught.value) and "P@W" not in str(caught.value)
