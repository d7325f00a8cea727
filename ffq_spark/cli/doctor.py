"""The verb doctor: findings about the settings of a planned or running Spark session."""

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
@click.option(
    "--conf",
    "given_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a Spark setting, as for spark-submit.",
)
@click.option(
    "--properties-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read settings from this file, as for spark-submit; by default from the "
    "spark-defaults.conf in SPARK_CONF_DIR.",
)
@click.option(
    "--url", help="Check the running application with this UI, such as http://127.0.0.1:4040."
)
@click.option(
    "--app", default="", help="Check the application with this id; needed if the UI lists several."
)
@click.option(
    "--root",
    default="",
    help="Check that the storage client for exchanges at this path is installed.",
)
@ending
def doctor(
    output: Output,
    given_settings: tuple[str, ...],
    properties_file: Path | None,
    url: str | None,
    app: str,
    root: str,
) -> int:
    """Check the settings of a Spark session.

    List each setting that should change, its cost, and the remedy. The session is the one that
    spark-submit would start here with these flags or, with --url, a running one. Exit code 1: a
    setting should change.
    """
    if url and (given_settings or properties_file or root):
        raise click.UsageError(
            "--url checks a running session: leave out --conf, --properties-file and --root"
        )
    if url:
        findings = list(check(running(url, app)))
    else:
        facts = planned(dict(pairs("--conf", given_settings)), properties_file)
        findings = list(check_planned(facts, root))
    return report(output, findings)


def report(output: Output, findings: Iterable[Finding]) -> int:
    """Print findings as a table and return the exit code."""
    rows = [astuple(finding) for finding in findings]
    if rows or output.json:
        output.table([field.name for field in fields(Finding)], rows)
    output.line(f"{len(rows)} findings" if rows else "no findings")
    return FINDING if rows else OK


COMMANDS = (doctor,)
