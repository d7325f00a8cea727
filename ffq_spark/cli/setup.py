"""Verbs that set Spark up: jar, conf."""

from __future__ import annotations

import json

import click

from ffq_spark.conf import flags, jar_path


@click.command()
def jar() -> None:
    """Print the path of the plugin's jar, as the value of spark.jars."""
    click.echo(jar_path())


@click.command()
@click.option(
    "--format",
    "style",
    type=click.Choice(["flags", "properties", "json"]),
    default="flags",
    show_default=True,
    help="Print flags for spark-submit, a properties file, or JSON.",
)
def conf(style: str) -> None:
    """Print the recommended Spark settings.

    They load the plugin and make Python data sources fast.
    """
    if style == "json":
        click.echo(json.dumps(flags(), indent=2))
        return
    for name, value in flags().items():
        click.echo(f"--conf {name}={value}" if style == "flags" else f"{name} {value}")


COMMANDS = (jar, conf)
