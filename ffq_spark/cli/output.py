"""The output of a command: tables or JSON on stdout, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_WIDE = 400


class Output:
    """The output of one command, as tables and sentences or, if `json` is set, as JSON."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        terminal = sys.stdout.isatty()
        self._console = Console(width=None if terminal else _WIDE, highlight=False)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print rows under column names; in JSON a list of objects."""
        if self.json:
            self._print([dict(zip(columns, row, strict=True)) for row in rows])
            return
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        self._console.print(table)

    def record(self, values: dict[str, Any]) -> None:
        """Print named values; in JSON one object."""
        if self.json:
            self._print(values)
            return
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold")
        table.add_column()
        for name, value in values.items():
            table.add_row(name.replace("_", " "), _cell(value))
        self._console.print(table)

    def line(self, text: str) -> None:
        """Print a sentence; print nothing with `--json`."""
        if not self.json:
            self._console.print(text, markup=False)

    def item(self, values: dict[str, Any]) -> None:
        """Print one of many values at once, on a line of its own; in JSON one object per line."""
        if self.json:
            print(json.dumps(values, default=str))
        else:
            self._console.print(*values.values(), markup=False, soft_wrap=True)

    def _print(self, value: Any) -> None:
        print(json.dumps(value, indent=2, default=str))

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar on stderr while the block runs, if stderr is a terminal."""
        console = Console(stderr=True)
        with Progress(console=console, disable=self.json or not console.is_terminal) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def counter(self, title: str) -> Iterator[Callable[[int], None]]:
        """Show a running count on stderr while the block runs, if stderr is a terminal."""
        console = Console(stderr=True)
        text = TextColumn(f"{{task.completed:.0f}} {title}")
        columns = SpinnerColumn(), text, TimeElapsedColumn()
        disable = self.json or not console.is_terminal
        with Progress(*columns, console=console, disable=disable) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done: bar.update(task, completed=done)


def _cell(value: Any) -> Text:
    """Format a value as plain text; rich would read brackets in a string as markup."""
    if value is None:
        return Text("-")
    if isinstance(value, (list, tuple)):
        return Text(", ".join(str(item) for item in value) or "-")
    return Text(str(value))


def human_bytes(count: int) -> str:
    """Format a number of bytes with a binary unit.

    >>> human_bytes(5_242_880)
    '5.0 MiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_time(milliseconds: int) -> str:
    """Format a time in UTC.

    >>> human_time(0)
    '1970-01-01 00:00:00Z'
    """
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
