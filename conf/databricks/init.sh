#!/bin/bash
# Copies the plugin's jar into the directory from which the driver and the executors load jars when
# they start. The project's tests do not run this script: see README.md in this directory.
set -euo pipefail
: "${FFQ_WHEEL:?set FFQ_WHEEL in the cluster's environment variables to the path of the wheel}"
unzip -o -j "$FFQ_WHEEL" 'ffq_spark/jars/ffq-spark.jar' -d /databricks/jars
