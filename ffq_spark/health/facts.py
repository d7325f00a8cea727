"""The facts about a session that checks read, and the findings that they return."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ffq_spark.conf import BRIDGE, SPARK
from ffq_spark.options import WriteOptions, size

_LOCAL = re.compile(r"local\[(\d+|\*)")
_CONTAINERS = ("yarn", "k8s")


@dataclass(frozen=True)
class Finding:
    """A setting that should change: its present and wanted value, the cost, and the remedy."""

    setting: str
    now: str
    wanted: str
    cost: str
    remedy: str


@dataclass(frozen=True)
class Facts:
    """The settings and versions of a planned or running session; an unknown version is empty.

    >>> Facts({"spark.master": "local[4]"}).cores
    4
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    spark: str = ""
    java: str = ""
    running: bool = False

    def get(self, name: str, default: str = "") -> str:
        """Return a setting, or the default if it is not set."""
        return self.settings.get(name, default)

    @property
    def has_plugin(self) -> bool:
        """Return whether spark.plugins names the plugin."""
        return self.lists("spark.plugins")

    @property
    def plugin_works(self) -> bool:
        """Return whether the plugin is set and built for this Spark; elsewhere it is off."""
        return self.has_plugin and (not self.spark or self.spark.startswith(SPARK))

    def lists(self, name: str) -> bool:
        """Return whether the classes that a setting lists include the plugin's class."""
        return BRIDGE[name] in (entry.strip() for entry in self.get(name).split(","))

    @property
    def master(self) -> str:
        """Return the address of the cluster manager, spark.master."""
        return self.get("spark.master")

    @property
    def in_containers(self) -> bool:
        """Return whether executors run in containers, which are killed if they exceed memory."""
        return self.master.startswith(_CONTAINERS)

    @property
    def cores(self) -> int:
        """Return the number of tasks that one executor runs at the same time."""
        local = _LOCAL.match(self.master)
        if local:
            return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
        cores = float(self.get("spark.executor.cores") or 1)
        return max(1, int(cores / float(self.get("spark.task.cpus") or 1)))

    @property
    def buffer_bytes(self) -> int:
        """Return the memory that one write task may use for its buffer."""
        return WriteOptions.resolve({}, self.settings).max_buffer_bytes

    def bytes(self, name: str, default: str, unit: int = 1 << 20) -> int:
        """Return a size setting in bytes; a number without a unit is in multiples of `unit`."""
        text = self.get(name, default).strip().lower()
        return int(text) * unit if text.isdigit() else size(text)
