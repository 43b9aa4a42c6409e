#!/usr/bin/env bash
# Prints the path of a Python that has an OpenMetrics parser, for the test of manylane-api that needs one:
#
#   OPENMETRICS_PYTHON=$(tests/openmetrics.sh) cargo test -p manylane-api openmetrics
#
# Needs python3 with venv (Debian: python3-venv) and, once, PyPI, which has Prometheus' client for Python.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${target:-${CARGO_TARGET_DIR:-$PWD/target}}
version=0.26.0
tools=$target/tools/openmetrics-$version

# Named last: a folder with that file is complete.
if [ ! -e "$tools/done" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps "prometheus_client==$version" >&2
    touch "$tools/done"
fi
echo "$tools/bin/python"
