"""What the checks look at, wherever it comes from, and what they find."""

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
    """Something that should be otherwise: what is, what is wanted, the cost, and the remedy."""

    setting: str
    now: str
    wanted: str
    cost: str
    remedy: str


@dataclass(frozen=True)
class Facts:
    """A session as far as it is known; an empty version is one that nobody knows.

    >>> Facts({"spark.master": "local[4]"}).cores
    4
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    spark: str = ""
    java: str = ""
    running: bool = False

    def get(self, name: str, default: str = "") -> str:
        return self.settings.get(name, default)

    @property
    def has_plugin(self) -> bool:
        return self.lists("spark.plugins")

    @property
    def plugin_works(self) -> bool:
        """Whether the plugin does its work: it does none on a Spark that it was not built for."""
        return self.has_plugin and (not self.spark or self.spark.startswith(SPARK))

    def lists(self, name: str) -> bool:
        """Whether our own class is among those of a setting."""
        return BRIDGE[name] in (entry.strip() for entry in self.get(name).split(","))

    @property
    def master(self) -> str:
        return self.get("spark.master")

    @property
    def in_containers(self) -> bool:
        """Whether executors are killed for the memory that they take beside their heap."""
        return self.master.startswith(_CONTAINERS)

    @property
    def cores(self) -> int:
        """How many tasks run at once in one executor."""
        local = _LOCAL.match(self.master)
        if local:
            return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
        cores = float(self.get("spark.executor.cores") or 1)
        return max(1, int(cores / float(self.get("spark.task.cpus") or 1)))

    @property
    def buffer_bytes(self) -> int:
        """What one write task may hold."""
        return WriteOptions.resolve({}, self.settings).max_buffer_bytes

    def bytes(self, name: str, default: str, unit: int = 1 << 20) -> int:
        """A setting of Spark that is a size; a number without a unit has the setting's own."""
        text = self.get(name, default).strip().lower()
        return int(text) * unit if text.isdigit() else size(text)
