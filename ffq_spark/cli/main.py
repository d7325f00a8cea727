"""The command group `ffq-spark`. Exit codes: 0 ok, 1 finding, 2 usage, 3 storage."""

from __future__ import annotations

import click

from ffq_spark.cli import contents, doctor, follow, inspect, manage, plan, serve, setup


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ffq-spark", prog_name="ffq-spark")
def main() -> None:
    """Inspect and maintain exchanges: durable, hash-partitioned shuffles.

    Neither Spark nor Java is needed. Exit codes: 0 success, 1 finding, 2 wrong usage, 3 storage
    error.
    """


for group in (inspect, contents, manage, follow, setup, doctor, plan, serve):
    for command in group.COMMANDS:
        main.add_command(command)
