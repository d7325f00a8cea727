"""Check the form of the Scala sources: line length, tabs and trailing blanks.

    python jars/check.py [FILE...]

scalafmt, configured in .scalafmt.conf, is not on PyPI; these rules need no download. The compiler
reports unused imports when it builds the jar.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
MAX_COLUMNS = 100


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(SOURCES.rglob("*.scala"))
    findings = [finding for path in paths for finding in check(path)]
    print("\n".join(findings) or f"{len(paths)} Scala sources: no findings")
    sys.exit(1 if findings else 0)


def check(path: Path) -> Iterator[str]:
    """Yield a message for each line that breaks a rule."""
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, the limit is {MAX_COLUMNS}"
        if "\t" in line:
            yield f"{path}:{number}: tab"
        if line != line.rstrip():
            yield f"{path}:{number}: trailing blanks"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield f"{path}: the file must end with one line break"


if __name__ == "__main__":
    main()
