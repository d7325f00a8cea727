#!/bin/bash
# Puts the plugin's jar where the driver and the executors find it at their start. Not run by the
# project's tests: see README.md beside this file.
set -euo pipefail
: "${FFQ_WHEEL:?set FFQ_WHEEL in the cluster's environment variables to the path of the wheel}"
unzip -o -j "$FFQ_WHEEL" 'ffq_spark/jars/ffq-spark.jar' -d /databricks/jars
