#!/usr/bin/env bash
# Tests the documentation: its links, and its commands.
#
#     tests/docs.sh links           every relative link leads to a file; the site's table of contents lists every page;
#                                   no command of a page waits without a bound, or needs an alias; each page with commands
#                                   of manylane says, or links to, what they need before they are pasted
#     tests/docs.sh pages [PAGE...] the commands of docs/*.md, page by page, as root
#
# A page's commands are its ```sh blocks, in order, in one shell that ends at the first failure. The shell has network,
# mounts and processes of its own, an empty /run, the loopback up, and a working folder with a copy of examples/. So a
# page creates the networks and files that it needs, and they end with the shell. Blocks of other kinds are only read:
# ```text, ```console. Blocks of ```sh installed need the package; tests/package.sh runs them.
#
# `target` names the target folder; its debug/ comes first in PATH.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${target:-${CARGO_TARGET_DIR:-$PWD/target}}
seconds_max=60

links() {
    local page link file failed=0
    for page in *.md docs/*.md crates/*/README.md; do
        # Outside of code, where brackets are no links.
        while read -r link; do
            file=${link%%#*}
            case $link in http://* | https://* | mailto:* | '#'*) continue ;; esac
            [ -e "$(dirname "$page")/$file" ] || { echo "$page: no such file: $link"; failed=1; }
        done < <(awk '/^ *```/ { code = !code; next } !code' "$page" | sed 's/`[^`]*`//g' |
            grep -oE '\]\([^) ]+' | cut -c3-)
    done
    for page in *.md docs/*.md; do
        grep -qF "\"$page\" }" docs/zensical.toml || { echo "docs/zensical.toml: $page is not in the table of contents"; failed=1; }
    done
    while read -r page; do
        [ -e "$page" ] || { echo "docs/zensical.toml: no such page: $page"; failed=1; }
    done < <(sed -n 's/.*= "\(.*\.md\)" },*$/\1/p' docs/zensical.toml)
    # A reader who lacks one thing would wait for ever. A shell in a namespace or under sudo knows no alias.
    for page in README.md docs/*.md; do
        while read -r link; do
            echo "$page: $link"
            failed=1
        done < <(awk '/^ *```/ { run = !run && /```sh/; next } run { sub(/(^| )#.*/, ""); print }' "$page" |
            grep -E '^ *alias |(^|[ ;"])(until|while) ' | grep -vE 'timeout [0-9]+ .*(until|while)|while read' |
            sed 's/^/a wait without a bound, or an alias: /')
    done
    # A command is found in a namespace only with PATH set, and a page's files only in its folder: one place says how.
    grep -q '^## Before you paste a page$' docs/tour.md && grep -q '^export PATH=' docs/tour.md ||
        { echo "docs/tour.md: no section that says what pasted commands need"; failed=1; }
    for page in README.md docs/*.md; do
        [ "$page" != docs/tour.md ] && awk '/^ *```/ { run = !run && $0 ~ /```sh$/; next } run' "$page" |
            grep -qE '(^|[ ;"])(manylane|ip netns|ip -n) ' || continue
        grep -q 'tour\.md#before-you-paste-a-page' "$page" ||
            { echo "$page: no link to what its commands need (tour.md#before-you-paste-a-page)"; failed=1; }
    done
    return "$failed"
}

pages() {
    local page failed=0
    [ -x "$target/debug/manylane" ] || { echo "no $target/debug/manylane; build it first: cargo build"; return 1; }
    [ "$#" -gt 0 ] || set -- docs/*.md
    for page in "$@"; do
        try "$page" || failed=1
    done
    return "$failed"
}

# Runs the commands of page $1; shows their output only if they fail.
try() {
    local page=$1 folder status=0 before=$SECONDS
    folder=$(mktemp -d)
    mkdir "$folder/work"
    cp -r examples "$folder/work/"
    # Empty lines replace all other lines, so that line numbers are the page's.
    awk '/^ *```/ { run = !run && $0 == "```sh"; print ""; next } { print run ? $0 : "" }' "$page" >"$folder/commands"
    if ! grep -q . "$folder/commands"; then
        rm -rf "$folder"
        return 0
    fi
    # SIGKILL: once unshare has a child, it takes no other signal, and it passes on this one.
    {
        timeout --signal=KILL "$seconds_max" unshare --net --mount --pid --fork --kill-child --mount-proc \
            "$BASH" "${BASH_SOURCE[0]}" inside "$folder" >"$folder/said" 2>&1 || status=$?
    } 2>/dev/null # bash's own message about a command that was killed.
    if [ "$status" -eq 0 ]; then
        echo "$page: $(grep -c . "$folder/commands") lines, $((SECONDS - before)) s"
    else
        sed 's/^/    /' "$folder/said"
        [ "$status" -ne 137 ] || echo "$page: not done after $seconds_max s"
        echo "$page FAILED (status $status): $(cat "$folder/command" 2>/dev/null)"
    fi
    rm -rf "$folder"
    return "$((status > 0))"
}

# In the namespaces of one page: $1 has its commands.
inside() {
    local folder=$1
    mount -t tmpfs -o mode=755 none /run
    mount -t sysfs none /sys
    ip link set lo up
    cd "$folder/work"
    # As in a terminal: with aliases and jobs. A file keeps the last command, for the report of a failure.
    cat >"$folder/environment" <<-'SHELL'
	shopt -s expand_aliases
	set -m
	trap '[ "$BASH_SUBSHELL" -gt 0 ] || echo "line $LINENO: $BASH_COMMAND" >"$FOLDER/command"' DEBUG
	unset BASH_ENV
	SHELL
    PATH=$target/debug:$PATH BASH_ENV=$folder/environment FOLDER=$folder "$BASH" -e "$folder/commands"
}

case ${1:-} in
links) links ;;
pages) shift && pages "$@" ;;
inside) inside "$2" ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
