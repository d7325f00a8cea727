"""The verb doctor: what a Spark session, planned or running, lacks, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path

import click

from ffq_spark.cli.context import FINDING, OK, ending, pairs
from ffq_spark.cli.output import Output
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Finding
from ffq_spark.health.planned import check_planned, planned
from ffq_spark.health.rest import running


@click.command()
@click.option("--conf", "given", multiple=True, metavar="NAME=VALUE", help="As for spark-submit.")
@click.option(
    "--properties-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="As for spark-submit; without it the spark-defaults.conf of SPARK_CONF_DIR is read.",
)
@click.option("--url", help="A running application's UI, such as http://127.0.0.1:4040.")
@click.option("--app", default="", help="The application's id, where the address has several.")
@click.option("--root", default="", help="Where exchanges will lie: is its client installed?")
@ending
def doctor(
    output: Output,
    given: tuple[str, ...],
    properties_file: Path | None,
    url: str | None,
    app: str,
    root: str,
) -> int:
    """Say which settings a Spark session lacks, and what each of them costs.

    The session is the one that spark-submit would start here with these flags, or, with --url, one
    that runs. Exit code 1: there is something to mend.
    """
    if url and (given or properties_file or root):
        raise click.UsageError("--url looks at a session that runs: leave the other flags out")
    if url:
        findings = list(check(running(url, app)))
    else:
        facts = planned(dict(pairs("--conf", given)), properties_file)
        findings = list(check_planned(facts, root))
    return report(output, findings)


def report(output: Output, findings: Iterable[Finding]) -> int:
    rows = [astuple(finding) for finding in findings]
    if rows or output.json:
        output.table([field.name for field in fields(Finding)], rows)
    output.line(f"{len(rows)} findings" if rows else "nothing to mend")
    return FINDING if rows else OK


COMMANDS = (doctor,)
