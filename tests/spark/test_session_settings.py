"""Settings in a user's session have effect where they are declared, and nowhere else."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_rows import failure, read, rows, write
from test_options import DECLARED, VALUES

import ffq_spark as ffq
from ffq_spark.conf import jar_path
from ffq_spark.errors import UnknownOption
from ffq_spark.options import (
    PLUGIN_SETTINGS,
    ReadOptions,
    WriteOptions,
    session_options,
    unknown_settings,
)
from ffq_spark.shared_names import PluginSetting, constants

pytestmark = pytest.mark.spark

KEYED = {"keys": "k", "partitions": 4}
# Valid values of the plugin's settings. In a session, only the last one has effect.
PLUGIN = dict(zip(PLUGIN_SETTINGS, ["python3", "20", "false", "1h", "1d", "true"], strict=True))


def declared(kind: str, *, per_call: bool) -> dict[str, str]:
    """Return the declared options of one kind, each with a valid value."""
    declarations = [
        field.metadata for (purpose, _), (_, field) in DECLARED.items() if purpose == kind
    ]
    return {
        one["name"]: VALUES[kind, one["name"]][0]
        for one in declarations
        if one["per_call"] == per_call
    }


READS = declared("read", per_call=False)
WRITES = declared("write", per_call=False)
CALLS = {**declared("serve", per_call=True), **declared("read", per_call=True)}
CALLS |= declared("write", per_call=True)
SERVES = declared("serve", per_call=False)


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """Make a new session and make it active, so that its writes find the source."""
    new = spark.newSession()
    jvm = spark._jvm.org.apache.spark.sql.classic.SparkSession
    jvm.setActiveSession(new._jsparkSession)
    yield new
    jvm.setActiveSession(spark._jsparkSession)


def set_all(session: Any, *several: dict[str, str]) -> None:
    for settings in several:
        for name, value in settings.items():
            session.conf.set(f"spark.ffq.{name}", value)


def frame(spark: Any) -> Any:
    return spark.range(0, 100, 1, 2).selectExpr("id", "id % 17 AS k")


def stream(session: Any, source: str, target: str, place: Path) -> None:
    """Stream one exchange into another until all steps are read."""
    steps = session.readStream.format("ffqshuffle").load(source)
    writer = steps.writeStream.format("ffqshuffle").options(**KEYED)
    writer = writer.option("checkpointLocation", str(place)).trigger(availableNow=True)
    writer.start(target).awaitTermination()


def test_a_session_may_hold_every_declared_option(
    session: Any, new_root: Any, tmp_path: Path
) -> None:
    """Writes, reads and streams use their own settings and ignore those of single calls."""
    set_all(session, CALLS, SERVES, PLUGIN, READS, WRITES)
    keyed, plain, followed = new_root(), new_root(), new_root()
    write(frame(session), keyed, **KEYED)
    ffq.register(session)
    write(frame(session), plain)
    stream(session, keyed, followed, tmp_path / "checkpoint")
    for root, partitions in ((keyed, 4), (plain, 1), (followed, 4)):
        exchange = ffq.Exchange(root)
        assert exchange.info().partitions == partitions
        assert not any("part-" in file for file in exchange.parts()["file"].to_pylist())
    assert rows(read(session, followed)) == rows(frame(session))


@pytest.fixture(scope="module")
def jar_options() -> dict[str, str]:
    with zipfile.ZipFile(jar_path()) as jar:
        lines = jar.read("io/ffq/spark/options.properties").decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("name", sorted({name for _, name in DECLARED}))
def test_each_option_counts_from_a_session_where_it_is_declared(
    jar_options: dict[str, str], name: str
) -> None:
    """The jar passes on, and `register` reads, exactly the options that a session may set."""
    setting = f"spark.ffq.{name}"
    assert unknown_settings([setting, setting.lower()]) == {}
    assert jar_options[name] == ("write" if name in session_options(WriteOptions) else "")
    for purpose, kind in (("read", ReadOptions), ("write", WriteOptions)):
        text, value, _ = VALUES.get((purpose, name), ("any", None, ()))
        options = kind.resolve({}, {setting: text}, {})
        if name in session_options(kind):
            (field,) = (f.name for f in kind.declared() if f.metadata["name"] == name)
            assert getattr(options, field) == value
        else:
            assert options == kind.resolve({}, {}, {})


def test_the_plugins_own_settings_are_declared_and_read(jar_options: dict[str, str]) -> None:
    """The plugin reads each of its settings by its declared name, and none by a name of its own."""
    sources = Path(__file__).parents[2].joinpath("jars", "src").rglob("*.scala")
    scala = "\n".join(file.read_text() for file in sources)
    declared = {
        "".join(word.capitalize() for word in name.split("_")): value
        for name, value in constants(PluginSetting).items()
    }
    assert set(re.findall(r"PluginSetting\.(\w+)", scala)) == set(declared)
    assert not re.findall(r'Prefix \+ "', scala)
    assert {jar_options[str(name)] for name in declared.values()} == {""}


def test_a_misspelt_setting_is_refused_by_its_full_name(session: Any, root: str) -> None:
    """Writes and `register` refuse it. The error omits the value, which may be a secret."""
    set_all(session, {"verfy": "hidden"})
    message = failure(lambda: write(frame(session), root, **KEYED))
    with pytest.raises(UnknownOption) as caught:
        ffq.register(session)
    for text in (message, str(caught.value)):
        assert "FFQ_UNKNOWN_OPTION" in text
        assert "spark.ffq.verfy; did you mean spark.ffq.verify?" in text
        assert "hidden" not in text
    assert not Path(root).exists()


@pytest.mark.parametrize("value", ["off", ""])
def test_a_bad_setting_of_the_planner_is_refused_by_queries_of_exchanges_alone(
    session: Any, root: str, value: str
) -> None:
    write(frame(session), root, **KEYED)
    session.conf.set("spark.ffq.planner.enabled", value)
    assert session.range(9).groupBy().count().first()[0] == 9
    exchange = read(session, root)
    for query in exchange, exchange.groupBy("k").count(), exchange.selectExpr("MAX(k)"):
        message = failure(query.collect)
        assert "[FFQ_BAD_OPTION] spark.ffq.planner.enabled" in message
        assert f"'{value}'" in message and "true or false" in message
    session.conf.set("spark.ffq.planner.enabled", "TRUE")
    assert len(exchange.select("id").collect()) == 100


def test_a_setting_is_no_option_of_a_call(session: Any, root: str) -> None:
    for name in ("spark.ffq.partitions", "spark.ffq.compression"):
        message = failure(lambda name=name: write(frame(session), root, **KEYED, **{name: "2"}))
        assert f"FFQ_UNKNOWN_OPTION] write has no option {name}" in message
