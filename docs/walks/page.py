"""Show walks in Markdown: a diagram of the packages, then the functions in their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from walks.trace import Function, trace_scenes
from walks.walk import Station, functions_of, package_of, package_ranks, upward_calls, walk

SETUP = Path(__file__).parents[2] / "setup.cfg"

TITLES = {
    "write": "Write",
    "read": "Read",
    "gc": "Garbage collection",
    "micro-batch": "Micro-batch",
}
CALLS = {
    "write": 'df.write.format("ffqshuffle").mode("append").save(root)',
    "read": 'spark.read.format("ffqshuffle").load(root).collect()',
    "gc": "Exchange(root).gc()",
    "micro-batch": 'stream.writeStream.format("ffqshuffle").start(root)',
}
OUTSIDE = {"gc": "user"}
# Parts of a walk that the page leaves out because an earlier walk shows them.
FOLDED = {"micro-batch": ("write_attempt", "Ledger.commit")}
# Spark asks for the name before every operation; it hands on to nothing.
NOT_DRAWN = ("FfqShuffleSource.name",)


def walks() -> str:
    """Trace the scenes and show each as a walk; fail if a package calls one above it.

    A micro-batch writes its attempts and commits as a batch write does; that is shown once.
    """
    scenes, ranks = trace_scenes(), package_ranks(SETUP)
    for calls in scenes.values():
        for call in upward_calls(calls, ranks):
            raise SystemExit(f"{call.caller} calls {call.function} of a package above its own")
    shown = {station.function for station in walk(scenes["write"])}
    return "\n" + "\n".join(
        section(scene, walk(calls, shown, FOLDED.get(scene, ())), len(functions_of(calls)))
        for scene, calls in scenes.items()
    )


def section(scene: str, stations: Sequence[Station], functions: int) -> str:
    """Show one walk: its call, a diagram of the packages that it enters, and its functions."""
    outside = OUTSIDE.get(scene, "Spark")
    modules = len({station.function.module for station in stations})
    return f"""### {TITLES[scene]}

`{CALLS[scene]}` lists {len(stations)} functions in {modules} modules, out of {functions} in all.

```mermaid
sequenceDiagram
{diagram(stations, outside)}
```

| function | what it does | changes on storage |
|---|---|---|
{table(stations)}
"""


def diagram(stations: Sequence[Station], outside: str) -> str:
    """Draw each call from one package to another, without generators: whoever pulls calls them."""
    hops = [
        (package_of(station.caller.module) if station.caller else outside, station)
        for station in stations
        if not station.is_generator and station.function.name not in NOT_DRAWN
    ]
    packages = dict.fromkeys(name for source, station in hops for name in (source, station.package))
    lines = [f"    participant {package}" for package in packages]
    lines += [
        f"    {source}->>{station.package}: {station.function.name}"
        for source, station in hops
        if source != station.package
    ]
    return "\n".join(lines)


def table(stations: Sequence[Station]) -> str:
    """List the functions; each is indented below the one that calls it."""
    depths: dict[Function | None, int] = {None: -1}
    lines = []
    for station in stations:
        depth = depths[station.function] = depths[station.caller] + 1
        module = station.function.module.removeprefix("ffq_spark.")
        name = f"{'&emsp;' * depth}`{module}` **{station.function.name}**"
        lines.append(f"| {name} | {station.summary} | {', '.join(station.effects)} |")
    return "\n".join(lines)
