"""Generate sections of docs/architecture.md: layers, packages, and walks through the code."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from walks.page import walks

TOP = Path(__file__).parent.parent
PACKAGE = "ffq_spark"
DIAGRAM = """```mermaid
flowchart TD
{lines}
```
"""


def fill(text: str) -> str:
    """Replace the generated sections of the page, each between two comments."""
    for name, section in (("layers", layers()), ("packages", packages()), ("walks", walks())):
        marked = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = marked.sub(lambda match, new=section: match[1] + new + match[2], text)
    return text


def layers() -> str:
    """Draw the layers of all import-linter contracts: a level imports from those below it."""
    config = configparser.RawConfigParser()
    config.read(TOP / "setup.cfg")
    contracts = [config[name] for name in config.sections() if name.startswith("importlinter:")]
    lines: list[str] = []
    for contract in contracts:
        if contract["type"] != "layers":
            continue
        container = contract.get("containers", "").strip().removeprefix(f"{PACKAGE}.")
        levels = [level(line, container) for line in contract["layers"].strip().splitlines()]
        edges = [f"{' & '.join(high)} --> {' & '.join(low)}" for high, low in pairwise(levels)]
        # Mermaid takes a name for a node unless the group of that name comes first.
        lines = [f"subgraph {container}", *edges, "end", *lines] if container else lines + edges
    return DIAGRAM.format(lines="\n".join(f"    {line}" for line in lines))


def level(line: str, container: str) -> list[str]:
    """Return the Mermaid nodes of one line of a contract."""
    names = [name.strip(" ()").removeprefix(f"{PACKAGE}.") for name in re.split(r"[|:]", line)]
    return [f"{container}_{name}[{name}]" if container else name for name in names]


def packages() -> str:
    """Tabulate packages and top-level modules with their purpose and what they import."""
    text = "| package | what it does | imports |\n|---|---|---|\n"
    for package in sorted(all_packages()):
        imports = ", ".join(f"`{name}`" for name in sorted(imported_packages(package)))
        text += f"| `{package}` | {purpose(package)} | {imports} |\n"
    return text


@cache
def all_packages() -> dict[str, list[Path]]:
    """Return the modules of each package, by its name below `ffq_spark`."""
    modules: dict[str, list[Path]] = {}
    for path in sorted((TOP / PACKAGE).rglob("*.py")):
        directory = path.parent.relative_to(TOP / PACKAGE)
        name = ".".join(directory.parts) or path.stem
        if name != "__init__":
            modules.setdefault(name, []).append(path)
    return modules


def imported_packages(package: str) -> set[str]:
    """Return the other packages whose modules a package imports, for type checkers alone too."""
    modules = {module for path in all_packages()[package] for module in imported_modules(path)}
    return {owner for owner in map(package_of, modules) if owner and owner != package}


def imported_modules(path: Path) -> Iterator[str]:
    """Yield what a file imports from `ffq_spark`: dotted names below it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        prefix = f"{PACKAGE}."
        yield from (name.removeprefix(prefix) for name in names if name.startswith(prefix))


def package_of(name: str) -> str | None:
    """Return the package that a module or a name in it belongs to, or None for other names."""
    while name and name not in all_packages():
        name = name.rpartition(".")[0]
    return name or None


def purpose(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    directory = TOP / PACKAGE / Path(*package.split("."))
    source = directory / "__init__.py" if directory.is_dir() else directory.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text())) or ""
    return re.split(r"(?<=\.)\s", docstring, maxsplit=1)[0].replace("\n", " ")
