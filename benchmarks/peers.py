"""Compare ffq_spark with other systems that store, read and look up partitioned rows.

    python benchmarks/peers.py [--only write,read,lookup,join,tasks,memory,planning,s3]
    python benchmarks/peers.py --rows 200_000 --rounds 1 --warm-up 1 --buffer 8MiB    # a trial

All contenders of a measure run side by side, as `harness.py` describes. Results are written to
`benchmarks/results/<name>.json` and `.svg` after each measure. The exit code is 1 if a contender
fails or its result differs from that of the others. Missed targets are shown, and do not change it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# The imports register the contenders of both modules.
import other_contenders  # noqa: F401
import report
import spark_contenders  # noqa: F401
from harness import CONTENDERS, Settings, run_measure
from rich.console import Console

ORDER = ("write", "read", "lookup", "join", "tasks", "memory", "planning", "s3")
RESULTS = Path(__file__).parent / "results"


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(ORDER), help="measures, separated by commas")
    parser.add_argument("--name", default="peers", help="name of the result files")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; use at least 3")
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before the measured ones")
    parser.add_argument("--driver-memory", default="4g", help="memory of each Spark and DuckDB")
    parser.add_argument("--buffer", default="256MiB", help="maxBufferBytes for `memory`")
    parser.add_argument(
        "--maps", type=int, default=1000, help="map tasks and partitions for `planning`"
    )
    parser.add_argument(
        "--layouts", default="parts", help="layouts for `s3`: parts, packed, or both"
    )
    parser.add_argument("--folder", help="keep inputs, outputs and logs here")
    return parser.parse_args()


def main() -> int:
    # sys.exit unwinds the stack, which stops contenders and deletes the temporary folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = vars(flags())
    name, only = arguments.pop("name"), arguments.pop("only").split(",")
    unknown = set(only) - {contender.measure for contender in CONTENDERS}
    if unknown:
        sys.exit(f"unknown measure {', '.join(sorted(unknown))}: choose from {', '.join(ORDER)}")
    if arguments["folder"]:
        return run(Settings(**arguments), only, name)
    with tempfile.TemporaryDirectory(prefix="ffq-peers-", ignore_cleanup_errors=True) as folder:
        return run(Settings(**{**arguments, "folder": folder}), only, name)


def run(settings: Settings, only: list[str], name: str) -> int:
    console = Console()
    document: dict[str, Any] = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": report.machine(),
        "versions": report.versions(),
        "settings": {k: v for k, v in asdict(settings).items() if k != "folder"},
        "measures": {},
        "targets": [],
    }
    for part in ("machine", "versions", "settings"):
        console.print(part, document[part])
    measures = document["measures"]
    for measure in (one for one in ORDER if one in only):
        console.print(f"[bold]{measure}")
        measures[measure] = run_measure(measure, settings, lambda line: console.out(line))
        report.show_measure(console, measure, measures[measure])
        document["targets"] = report.judge(measures)
        report.save(RESULTS / f"{name}.json", document)
    report.show_targets(console, document["targets"])
    differences = list(report.disagreements(measures))
    for difference in differences:
        console.print(f"[red]contenders differ: {difference}")
    failed = any("failed" in result for m in measures.values() for result in m.values())
    return int(failed or bool(differences))


if __name__ == "__main__":
    sys.exit(main())
