"""All options of reads, writes and the service: name, type, default and text.

Each option is declared once, and docs/options.md is generated from the declarations. The value of
an option comes from the call, else from the setting `spark.ffq.<name>`, else from the environment
variable `FFQ_<NAME>`, else it is the default. Options that describe a single call (`keys`,
`steps`, …) come only from the call. Reads ignore the settings of writes, and writes those of reads.
A setting below `spark.ffq.` that is not declared is an error.

>>> WriteOptions.resolve({"keys": "a, b", "maxBufferBytes": "64MiB"}).max_buffer_bytes
67108864
"""

from ffq_spark.options.declared import Options, environment_name, option
from ffq_spark.options.parsing import (
    MAX_PARTITIONS,
    MIB,
    attempt,
    boolean,
    names,
    number,
    one_of,
    partition_set,
    safe_name,
    size,
    starting_step,
    text,
)
from ffq_spark.options.reading import PlanArguments, ReadArguments, ReadOptions
from ffq_spark.options.serving import ServeOptions
from ffq_spark.options.session import (
    PLUGIN_SETTINGS,
    call_only_settings,
    known_names,
    refuse_unknown_settings,
    session_options,
    unknown_settings,
)
from ffq_spark.options.storage import CONF_PREFIX, STORAGE_PREFIX, storage_options
from ffq_spark.options.writing import WriteOptions

__all__ = [
    "CONF_PREFIX",
    "MAX_PARTITIONS",
    "MIB",
    "PLUGIN_SETTINGS",
    "STORAGE_PREFIX",
    "Options",
    "PlanArguments",
    "ReadArguments",
    "ReadOptions",
    "ServeOptions",
    "WriteOptions",
    "attempt",
    "boolean",
    "call_only_settings",
    "environment_name",
    "known_names",
    "names",
    "number",
    "one_of",
    "option",
    "partition_set",
    "refuse_unknown_settings",
    "safe_name",
    "session_options",
    "size",
    "starting_step",
    "storage_options",
    "text",
    "unknown_settings",
]
