"""The root under which statements write their results."""

from __future__ import annotations

import atexit
import shutil
import tempfile

RESULTS = "results"
"""The name under which callers read results. Served roots cannot have it."""


class ResultsRoot:
    """The configured root, or a temporary directory that is removed with the service.

    >>> import os
    >>> results = ResultsRoot()
    >>> results.remove()
    >>> os.path.exists(results.root)
    False
    """

    def __init__(self, root: str = "") -> None:
        self._is_temporary = not root
        self.root = root or tempfile.mkdtemp(prefix="ffq-results-")
        if self._is_temporary:
            # Remove it again when the process ends: a late Spark task may have written to it.
            atexit.register(self.remove)

    def remove(self) -> None:
        """Remove the root if it is temporary."""
        if self._is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)
