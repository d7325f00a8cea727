"""Report the results of a run: tables for people, JSON for programs, a plot, and the targets."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "dask", "distributed", "duckdb", "polars")
Results = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Target:
    """An upper limit for a figure, and the function that computes it from the results."""

    name: str
    measure: str
    wanted: float
    figure: Callable[[dict[str, dict[str, Any]]], float]
    unit: str = ""


def ratio(name: str, measure: str, ours: str, theirs: str, wanted: float) -> Target:
    """Return a target for the ratio of two medians."""
    return Target(name, measure, wanted, lambda m: m[ours]["median"] / m[theirs]["median"])


def excess(partitions: str) -> Target:
    """Return a target for a write worker's peak memory above its buffer."""
    name = f"write worker above its buffer, {partitions}"
    return Target(name, "memory", 256, lambda m: _above(m[partitions]), "MiB")


def _above(result: dict[str, Any]) -> float:
    return result["peak_mib"] - result["buffer_mib"]


TARGETS = [
    ratio("write / bucketBy", "write", "ours", "Spark bucketBy", 0.25),
    ratio("write / Spark's shuffle, not kept", "write", "ours", "Spark shuffle, not kept", 0.8),
    ratio("full read / Parquet scan", "read", "ours, verify=full", "Spark Parquet scan", 1.0),
    ratio("lookup / full read", "lookup", "ours", "ours, full read without Spark", 0.05),
    ratio("256 tasks tuned / defaults", "tasks", "tuned by ffq.configure", "Spark's defaults", 0.4),
    excess("64 partitions"),
    excess("4,000 partitions"),
    ratio("planning / pyarrow", "planning", "ours", "pyarrow reads the manifest", 4),
    Target("planning's peak", "planning", 1024, lambda m: m["ours"]["peak_mib"], "MiB"),
]


def judge(results: Results) -> list[dict[str, Any]]:
    """Compare the results with the targets of all measures that ran."""
    judged = []
    for target in TARGETS:
        if target.measure in results:
            figure = _figure(target, results[target.measure])
            passed = figure is not None and figure <= target.wanted
            judged.append({"target": target.name, "found": figure, "unit": target.unit})
            judged[-1] |= {"wanted": target.wanted, "passed": passed}
    return judged


def _figure(target: Target, measure: dict[str, dict[str, Any]]) -> float | None:
    """Compute a target's figure, or return None if a contender failed."""
    try:
        return round(target.figure(measure), 3)
    except (KeyError, TypeError):
        return None


def disagreements(results: Results) -> Iterator[str]:
    """Yield the measures whose contenders returned different results."""
    for name, measure in results.items():
        checks = {json.dumps(one["checked"]) for one in measure.values() if "checked" in one}
        if len(checks) > 1:
            yield f"{name}: {', '.join(sorted(checks))}"


def machine() -> dict[str, Any]:
    """Describe this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # The rest of the release names the build of one machine's kernel.
    release = ".".join(platform.release().split(".")[:2])
    return {
        "system": f"{platform.system()} {release}, {platform.machine()}",
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30), 1),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def versions() -> dict[str, str]:
    """Return the versions of all compared programs."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    here = Path(__file__).parent
    commit = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    own = {
        "ffq_spark": f"{_version('ffq-spark')} {commit.stdout.strip()}",
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "",
    }
    return {**own, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def show_measure(console: Console, name: str, measure: dict[str, dict[str, Any]]) -> None:
    table = Table("contender", "median s", "rounds", "facts", title=name, title_justify="left")
    for contender, result in measure.items():
        hidden = ("median", "seconds", "checked", "failed")
        facts = ", ".join(f"{k} {v}" for k, v in result.items() if k not in hidden)
        rounds = " ".join(f"{seconds:.3f}" for seconds in result["seconds"])
        median = "failed" if result["median"] is None else f"{result['median']:.3f}"
        table.add_row(contender, median, rounds, result.get("failed") or facts)
    console.print(table)


def show_targets(console: Console, judged: list[dict[str, Any]]) -> None:
    table = Table("target", "wanted, at most", "found", "", title="targets", title_justify="left")
    for one in judged:
        figure = "-" if one["found"] is None else f"{one['found']:g} {one['unit']}"
        verdict = "[green]pass" if one["passed"] else "[red]fail"
        table.add_row(one["target"], f"{one['wanted']:g} {one['unit']}", figure, verdict)
    console.print(table)


def save(path: Path, document: dict[str, Any]) -> None:
    """Write the JSON file, and the plot beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
    plot(path.with_suffix(".svg"), document["measures"])


def plot(path: Path, results: Results) -> None:
    """Draw a panel for each measure: medians as bars, rounds as dots."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    heights = [len(measure) + 1 for measure in results.values()]
    figure, panels = pyplot.subplots(
        len(results),
        squeeze=False,
        figsize=(9, 0.35 * sum(heights) + 0.5),
        height_ratios=heights,
        layout="constrained",
    )
    for panel, (name, measure) in zip(panels[:, 0], results.items(), strict=True):
        done = {contender: result for contender, result in measure.items() if result["seconds"]}
        medians = [result["median"] for result in done.values()]
        colors = ["tab:orange" if is_ours(contender) else "tab:blue" for contender in done]
        panel.barh(list(done), medians, color=colors, alpha=0.7)
        for position, result in enumerate(done.values()):
            panel.plot(result["seconds"], [position] * len(result["seconds"]), "k.", markersize=3)
            # A label at the median would hide dots.
            label, end = f"  {result['median']:.3g} s", max(result["seconds"])
            panel.text(end, position, label, verticalalignment="center")
        panel.set_title(name, loc="left", fontweight="bold")
        panel.invert_yaxis()
        panel.margins(x=0.15)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    pyplot.close(figure)


def is_ours(contender: str) -> bool:
    theirs = ("Spark", "DuckDB", "Polars", "dask", "pyarrow")
    return not contender.startswith(theirs)
