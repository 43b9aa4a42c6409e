#!/usr/bin/env bash
# Builds the documentation as a site with search, from docs/zensical.toml: target/site/site/index.html. Fails on a link or
# an anchor that leads nowhere. Needs python3 with venv (Debian: python3-venv) and, once, PyPI.
#
# Pages link to sources and examples. So the generator reads a copy of every file of the repository that a page may link
# to, at its place; sources reach the site as they are.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${target:-${CARGO_TARGET_DIR:-$PWD/target}}
tools=$target/tools/site
work=$target/site

# Installed once for each version of the list, and again where the folder was moved: the programs name Python by its path.
if ! cmp -s docs/requirements.txt "$tools/requirements.txt" || ! "$tools/bin/zensical" --version >/dev/null 2>&1; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check -r docs/requirements.txt
    cp docs/requirements.txt "$tools/"
fi

rm -rf "$work"
mkdir -p "$work/source"
cp docs/zensical.toml "$work/"
# The files of the work tree, also those that are not committed yet.
git ls-files -z --cached --others --exclude-standard -- '*.md' '*.png' '*.svg' '*.rs' '*.h' '*.toml' '*.sh' '*.json' 'LICENSE-*' docs/site.css ':(exclude)bench/performance.in.md' |
    while IFS= read -r -d '' file; do
        [ ! -f "$file" ] || printf '%s\0' "$file"
    done | xargs -0 cp --parents -t "$work/source"

(cd "$work" && "$tools/bin/zensical" build --strict)
echo "$work/site/index.html"
