"""Find import cycles between single modules, also through a package's own `__init__`.

    python checks/cycles.py

The contract `acyclic` of import-linter compares the children of each package with each other, so it
does not see a module that imports its own package back. Imports under TYPE_CHECKING count here too.
"""

from __future__ import annotations

import os
import sys
from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGE = "ffq_spark"


def main() -> int:
    # The package below the current directory comes before one that is installed.
    sys.path.insert(0, os.getcwd())
    graph = grimp.build_graph(PACKAGE, cache_dir=None, exclude_type_checking_imports=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        print("import cycle:", " <- ".join(error.args[1]), file=sys.stderr)
        return 1
    print(f"{len(imports)} modules: no import cycles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
