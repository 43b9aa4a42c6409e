#!/usr/bin/env bash
# Everything that a change must pass: `./ci.sh` runs all steps, `./ci.sh STEP...` runs some of them.
#
# A run of all steps has four lanes at once: two of scenarios, which mostly wait, and two that compute, at the lowest
# priority. Such a run prints the output of a step when the step ends. Named steps run one after another and print at once.
#
# The output ends with what failed and why. Its last line is "N passed, M failed, K skipped": the tests of all steps, one
# failure for each step that failed otherwise, and the lines that begin with SKIPPED. The exit status is 0 only if nothing
# failed. With CI=true, what was skipped counts as failed: a CI machine has all that the tests need.
#
# A scenario that fails is run once more by itself: the kernel's time is the whole machine's, and the lanes leave a scenario
# little of it. One that passes then is no failure, but is named in the end, with its panic: that is a fault to look for, in
# the scenario or in what it tests.
#
# Needs Rust with clippy and rustfmt. As root on Debian, a run of all steps installs the other tools first. Steps that
# need root (network namespaces, BPF) print SKIPPED for other users.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null

# Three retries, cargo's default, were too few for slow mirrors.
export CARGO_NET_RETRY="${CARGO_NET_RETRY:-10}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
# Nothing is built twice, so cargo need not prepare for it.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
# A panic names its line without them, and an eighth of the build is saved.
export CARGO_PROFILE_DEV_DEBUG="${CARGO_PROFILE_DEV_DEBUG:-none}"

target=${CARGO_TARGET_DIR:-$PWD/target}
# A run that hangs is ended after this time, as a failure, and its output is printed.
seconds_max=4500
# The steps of a run of all: these first, one after another ...
first=(fmt build)
# ... then these lanes at once. Cargo locks a target folder while it builds there, so those that compute begin with steps
# that build elsewhere, while the scenarios, which `build` built, start.
router=(netns stateful)
accelerator=(accelerate io docs deb bench-smoke)
protocols=(loom counted differential prose site dependencies)
checks=(bpf fuzz-smoke clippy doc test)
# The one step outside of a run of all needs a git repository on github.com.
steps=("${first[@]}" "${router[@]}" "${accelerator[@]}" "${protocols[@]}" "${checks[@]}" advisories)
# More scenarios than these that fail in one step are not run again.
again_max=3
# The crates whose integration tests need the kernel, by names in the words of jq.
kernel_crates='(.name | test("^manylane-(io|accelerate|lab)$"))'
packages="iperf3 curl iputils-ping iproute2 procps nftables iptables conntrack frr bird2 tcpdump tshark libpcap0.8 ethtool jq
    nfdump nfdump-sflow clang llvm libbpf-dev gcc g++ adduser binutils chromium lintian systemd libcap2-bin python3-venv
    prometheus vsftpd"

# --- The steps, one function each. -----------------------------------------------------------------

# rustfmt has nothing to change.
step_fmt() {
    cargo fmt --all --check
}

# The English of pages and comments, by vale: first the rules against what they must find, then the repository.
step_prose() {
    tests/prose.sh rules
    tests/prose.sh
}

# clippy has nothing to say; also about what only a loom build compiles. (`counted` lints what only a build that counts
# does.)
step_clippy() {
    cargo clippy --workspace --all-targets -- -D warnings
    under_loom cargo clippy -p manylane-sync -p manylane-net --tests -- -D warnings
}

# All targets once, optimised a little: what unit tests, scenarios and the benches' trial use.
step_build() {
    cargo build --workspace --all-targets
}

# All tests but those of the other steps: unit tests, documentation, and what needs no root.
step_test() {
    local name tests=()
    for name in $(test_targets "$kernel_crates | not" 'test("^(netns|accelerate|differential)$") | not'); do
        tests+=(--test "$name")
    done
    local status=0
    if OPENMETRICS_PYTHON=$(tests/openmetrics.sh); then export OPENMETRICS_PYTHON; else status=1; fi
    cargo test --workspace --no-fail-fast --lib --bins "${tests[@]}" -- \
        --show-output || status=1
    cargo test --workspace --no-fail-fast --doc || status=1
    return "$status"
}

# The documentation builds, its links lead somewhere, and every published crate packs.
step_doc() {
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --workspace --no-deps
    cargo package --workspace --exclude=manylane-{bench,counted,fuzz} --no-verify --allow-dirty --quiet
}

# The protocols of manylane-sync (crates/manylane-sync/tests/loom.rs) and the flow table of manylane-net (src/transit/flows/
# explored.rs) in every interleaving. One thread is the fastest: threads of one process wait for each other wherever they
# map memory.
step_loom() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    mkdir -p "$target/loom"
    gcc -O2 -Wall -shared -fPIC -o "$target/loom/stacks.so" tests/stacks.c
    declare -x "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER=env LD_PRELOAD=$target/loom/stacks.so"
    under_loom cargo test -p manylane-sync --release --test loom -- --test-threads=1
    under_loom cargo test -p manylane-net --release --lib -- --test-threads=1
}

# Atomics that count find writes to shared lines (I5) in tests that have such writes, and in none of the forwarder's. Of
# the package alone, as the bench's `scale` runs it.
step_counted() {
    counting cargo test -p manylane-sync --lib
    counting cargo test -p manylane-counted --features counting
}

# The BPF sources compile, to the instructions in the repository; another clang may find others, and
# then their verdicts must be the same. Those of the program that forwards are for a later processor.
step_bpf() {
    local source
    for source in crates/manylane-io/src/bpf/*.bpf.c; do
        same_program "$source" manylane-io io
    done
    for source in crates/manylane-lab/src/generator/*.bpf.c; do
        same_program "$source" manylane-lab '*'
    done
    for source in crates/manylane-accelerate/src/programs/*.bpf.c; do
        same_program "$source" manylane-accelerate programs -mcpu=v3
    done
}

# Each fuzz target builds, and survives FUZZ_SECONDS (10) from its corpus.
step_fuzz_smoke() {
    RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/rustc cargo build --package manylane-fuzz --features libfuzzer
    printf '%s\n' fuzz/fuzz_targets/*.rs | xargs --max-procs=2 --replace basename {} .rs |
        xargs --max-procs=2 --replace bash -c 'set -euo pipefail; fuzz_briefly "$@"' - {} "$target/debug"
}

# Runs fuzz target $1, a program in folder $2, from its corpus, and prints its output when it ends. As with scenarios, an
# input that fails is run again by itself, a thousand times; if it passes then, it is no failure, but is named in the end.
fuzz_briefly() {
    local name=$1 found input status=0
    # libFuzzer writes its findings into its first folder, so the seeds stay as they are. Started directly: `cargo fuzz
    # run` would wait for any other cargo's lock.
    found=$(mktemp -d -p "$work")
    mkdir -p "fuzz/artifacts/$name"
    "$2/$name" "$found" "fuzz/corpus/$name" -max_total_time="${FUZZ_SECONDS:-10}" \
        -artifact_prefix="fuzz/artifacts/$name/" -print_final_stats=1 -verbosity=0 >"$found.said" 2>&1 || status=$?
    input=$(sed -n 's/.*Test unit written to //p' "$found.said")
    if [ "$status" -ne 0 ] && [ -n "$input" ] && "$2/$name" -runs=1000 "$input" >>"$found.said" 2>&1; then
        status=0
        { echo "=== passed when run again, by itself: $input"; grep -A 1 ' panicked at ' "$found.said" || true; } >>"$work/causes"
    fi
    # But for the dictionary that it recommends.
    {
        flock 9
        echo "--- $name"
        grep -v '# Uses: ' "$found.said"
    } 9>>"$work/fuzz.lock"
    return "$status"
}

# Whole systems in network namespaces, with a kernel's stack at both ends: the router's scenarios ...
step_netns() {
    as_root "scenarios of the router" --test netns --
}

# ... the accelerator's, without the stateful lane ...
step_accelerate() {
    local status=0
    root "scenarios of the accelerator" || return 0
    if GOFLOW2=$(tests/goflow2.sh); then export GOFLOW2; else status=1; fi
    as_root "scenarios of the accelerator" --test accelerate -- --skip stateful_ || status=1
    return "$status"
}

# ... and with it ...
step_stateful() {
    as_root "scenarios of the stateful lane" --test accelerate -- stateful_
}

# ... and the same random packets through two implementations.
step_differential() {
    as_root "differential tests" --test differential --
}

# The tests of ports, netlink and BPF programs, in network namespaces too.
step_io() {
    local name tests=()
    for name in $(test_targets "$kernel_crates" 'true'); do
        tests+=(--test "$name")
    done
    as_root "tests of ports and programs" "${tests[@]}" --
}

# The links of the documentation lead somewhere, and the commands of its pages do what they say.
step_docs() {
    tests/docs.sh links
    root "the commands of docs/*.md" || return 0
    [ -x "$target/debug/manylane" ] || cargo build --bin manylane
    tests/docs.sh pages
}

# The documentation builds as a site, without a link or an anchor that leads nowhere.
step_site() {
    docs/site.sh
}

# The dependencies have licences that we may use, come from crates.io, and no two are versions of one crate.
step_dependencies() {
    tests/dependencies.sh
}

# No advisory is open against a dependency.
step_advisories() {
    tests/dependencies.sh advisories
}

# The benches run, tiny, and a machine can read what they print. `scale` fails when workers write lines that they
# share (I5).
step_bench_smoke() {
    local question
    step_build
    # `compare all` includes `scale`, which builds and runs what `counted` tests.
    for question in fib forward tcp veth "compare all --html $work/report.html"; do
        # shellcheck disable=SC2086 # A question may be several words.
        "$target/debug/manylane-bench" $question --quick --json >>"$work/bench.json"
    done
    cat "$work/bench.json"
    jq -es 'length > 0 and all(.[]; type == "object" and . as $line
        | all("bench", "figure", "value", "min", "max", "runs", "unit"; in($line)))' \
        "$work/bench.json" >/dev/null || {
        echo "these are not lines of JSON with bench, figure, value, min, max, runs and unit"
        return 1
    }
    jq -es 'map(select(.figure == "observation_cost")) | length == 1' "$work/bench.json" >/dev/null || {
        echo "nobody looked at what forwards"
        return 1
    }
    # The other lanes may have disturbed a row, which is then refused. A question that fails has ended this step above.
    grep -o 'Not measured: [^<]*' "$work/report.html" || true
    grep -q '<section id="model">' "$work/report.html" || {
        echo "the report has no model"
        return 1
    }
}

# The Debian package, left in target/debian: built, and tried under systemd on a machine of its own. Of profile
# DEB_PROFILE: `dist`, unless all steps run, which test what `build` built.
step_deb() {
    local package
    package=$(contrib/debian/package "${DEB_PROFILE:-dist}")
    dpkg-deb --info "$package"
    if command -v lintian >/dev/null; then
        lintian --allow-root --fail-on error "$package"
    else
        echo "SKIPPED lintian: not installed"
    fi
    root "what the package installs" || return 0
    tests/package.sh "$package"
}

# --- What they share. ------------------------------------------------------------------------------

# Runs a command with the loom model instead of the standard library's atomics, in its own target
# folder: the flag would rebuild everything else.
under_loom() {
    RUSTFLAGS="${RUSTFLAGS:-} --cfg manylane_loom" CARGO_TARGET_DIR="$target/loom" "$@"
}

# Runs a command of cargo's with atomics that count, and lints the crates that have code for it.
counting() {
    CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ RUSTC_WORKSPACE_WRAPPER=$PWD/bench/counted/rustc "$@"
}

# Runs tests that need root, said to be $1 if they are skipped, one after another: threads of one process would disturb
# each other's waits, by the signals of children that end. The rest are cargo's words, `--`, and those of the tests. Of the
# whole workspace, as other steps: tests of one package would have dependencies with other features, to be built anew.
as_root() {
    local output failed
    root "$1" || return 0
    output=$(mktemp -p "$work")
    cargo test --workspace --no-fail-fast "${@:2}" --show-output --test-threads=1 |& tee "$output" && return
    # Of each program, the list behind the second "failures:".
    mapfile -t failed < <(awk '/^failures:$/ { names = "" } /^    [a-z0-9_:]+$/ { names = names $1 "\n" }
        /^test result: FAILED/ { printf "%s", names }' "$output" | sort -u)
    # Without a name it is another failure; many are no accident.
    [ "${#failed[@]}" -gt 0 ] && [ "${#failed[@]}" -le "$again_max" ] || return 1
    printf 'AGAIN %s\n' "${failed[@]}"
    cargo test --workspace --no-fail-fast "${@:2}" --show-output --test-threads=1 --exact "${failed[@]}" || return 1
    { echo "=== passed when run again, by themselves:"; causes "$output"; } >>"$work/causes"
}

# The names of the test targets of the packages, and of the names, that two filters let pass.
test_targets() {
    cargo metadata --no-deps --format-version 1 | jq -r ".packages[] | select($1) | .targets[]
        | select(.kind == [\"test\"]) | .name | select($2)" | sort -u
}

# BPF source $1, compiled with the options behind $3, is what was committed; or passes the tests named $3 of crate $2.
same_program() {
    local source=$1 crate=$2 tests=$3 committed=${1%.c}.o folder object
    folder=$(mktemp -d -p "$work")
    object=$folder/$(basename "$committed")
    clang -O2 -g "${@:4}" -fdebug-compilation-dir=. -target bpf -I"/usr/include/$(uname -m)-linux-gnu" \
        -c "$source" -o "$object"
    llvm-strip -g "$object"
    if diff <(instructions "$object") <(instructions "$committed"); then
        echo "$source: the same instructions"
    elif root "the verdicts of $source"; then
        MANYLANE_BPF_OBJECT=$object cargo test -p "$crate" --test "$tests" -- --show-output
    fi
}

# The instructions in BPF object $1. (Not its bytes: debug information names folders.)
instructions() {
    llvm-objdump -d --no-show-raw-insn "$1" | grep -v 'file format'
}

# Whether we are root; if not, says what is left out.
root() {
    [ "$(id -u)" -eq 0 ] || { echo "SKIPPED $1: needs root"; return 1; }
}

# Installs the Debian packages that are missing. Other users than root see what fails without them.
step_packages() {
    local package missing=()
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 0
    for package in $packages; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    apt-get update
    without_daemons env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"
}

# Runs a command during which packages that are installed start no daemons (policy-rc.d): tests start their own.
without_daemons() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then # The machine has a policy, which stays.
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || status=$?
    rm -f "$policy"
    return "$status"
}

# Runs steps one after another: `live` prints their output as it comes, `whole` when a step ends. As a shell of its own,
# which SIGTERM ends together with the running step.
lane() {
    local step how=$1
    stopped= running=
    trap 'stopped=yes; [ -z "$running" ] || kill "$running"' TERM
    for step in "${@:2}"; do
        [ -n "$stopped" ] || run "$step" "$how"
    done
}

# Runs one step of a lane. The lane counts a failure and continues.
run() {
    local step=$1 how=$2 begun=$SECONDS status=0 result file=$work/output.$1
    times >"$file.times" # Not in a pipe or `$()`: those are shells of their own.
    : >"$file"
    # In a process group of its own, so that all its processes end with it. (A shell's background jobs ignore SIGINT,
    # which tests send.)
    env --default-signal=INT,QUIT timeout --kill-after=30 "$((seconds_max > SECONDS ? seconds_max - SECONDS : 1))" \
        bash -c "set -euo pipefail; step_${step//-/_}" >"$file" 2>&1 &
    running=$!
    if [ "$how" = live ]; then
        printf '\n=== %s\n' "$step"
        tail --follow --lines=+1 --pid="$running" --sleep-interval=0.2 "$file" &
    fi
    wait "$running" || status=$?
    [ -z "$stopped" ] || wait "$running" || status=$? # The signal ended the first wait.
    running=
    wait # For `tail`.
    times >>"$file.times"
    result="$((SECONDS - begun)) s, $(cpu_seconds "$file.times") s of CPU"
    {
        flock 9
        [ "$how" = live ] || { printf '\n=== %s\n' "$step"; cat "$file"; }
        [ "$status" -ne 124 ] || echo "=== $step: ended after $seconds_max s of the run"
        if [ "$status" -eq 0 ]; then
            echo "=== $step: $result"
        else
            echo "=== $step FAILED (status $status): $result"
            # Failed tests count themselves.
            [ "$(count 6 "$file")" -gt 0 ] || echo "$step" >>"$work/failed"
            { echo "=== $step failed:"; causes "$file"; } >>"$work/causes"
        fi
        cat "$file" >>"$work/log"
    } 9>>"$work/lock"
}

# The seconds that a shell's children computed between two outputs of `times` in file $1.
cpu_seconds() {
    awk 'NR % 2 == 0 { split($1 "m" $2, part, /m|s/); sum = 60 * (part[1] + part[4]) + part[2] + part[5] - sum }
        END { printf "%.0f", sum }' "$1"
}

# The sum of column $1 of cargo's "test result: ok. N passed; M failed; ..." in file $2.
count() {
    awk -v column="$1" '/^test result: / { sum += $column } END { print sum + 0 }' "$2"
}

# Why a step failed, by its output $1: the panic of each failed test, without the backtrace; or else the last lines.
causes() {
    if [ "$(count 6 "$1")" -eq 0 ]; then
        tail --lines=20 "$1"
        return
    fi
    awk '/^failures:$/ { failures = 1; names = "" }
        /^test result: / { if (names) print "failed:" names; failures = told = 0; names = name = "" }
        !failures { next }
        /^---- .* stdout ----$/ { name = $2; told = 0 }
        /^stack backtrace:$/ { told = 0 }
        name && / panicked at / { print name; name = ""; told = 20 }
        told-- > 0 { print "    " $0 }
        /^    [a-z0-9_:]+$/ { names = names $0 }' "$1"
}

# Ends the lanes, and prints the last line, whatever happened.
finish() {
    local status=$? others_failed skipped passed broken
    trap - EXIT
    set +e
    # shellcheck disable=SC2046 # One word each.
    kill $(jobs -p) 2>/dev/null
    wait
    others_failed=$(wc -l <"$work/failed")
    skipped=$(grep -cE '^[[:space:]]*SKIPPED\b' "$work/log")
    if [ "${CI:-}" = true ] && [ "$skipped" -gt 0 ]; then
        echo "=== skipped, which is a failure with CI=true:"
        grep -E '^[[:space:]]*SKIPPED\b' "$work/log"
        others_failed=$((others_failed + skipped))
        skipped=0
    fi
    cat "$work/causes"
    passed=$(count 4 "$work/log")
    broken=$(($(count 6 "$work/log") - $(grep -c '^AGAIN ' "$work/log") + others_failed))
    rm -rf "$work"
    [ "$broken" -eq 0 ] || [ "$status" -ne 0 ] || status=1
    echo "$passed passed, $broken failed, $skipped skipped"
    exit "$status"
}

usage() {
    echo "usage: ./ci.sh [STEP...]      (no STEP: all of them)"
    echo "steps: ${steps[*]}"
    exit 2
} >&2

for step in "$@"; do
    [[ " ${steps[*]} " == *" $step "* ]] || usage
done

work=$(mktemp -d)
touch "$work/log" "$work/failed" "$work/causes"
export again_max kernel_crates packages target work
# shellcheck disable=SC2046 # One word each.
export -f $(compgen -A function)
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ "$#" -gt 0 ]; then
    lane live "$@" &
    wait
else
    # A run of all steps tests the package; for a package to use, run the step alone.
    export DEB_PROFILE="${DEB_PROFILE:-dev}"
    lane live packages "${first[@]}" &
    wait
    lane whole "${router[@]}" &
    lane whole "${accelerator[@]}" &
    { renice -n 19 "$BASHPID" >/dev/null; lane whole "${protocols[@]}"; } &
    { renice -n 19 "$BASHPID" >/dev/null; lane whole "${checks[@]}"; } &
    wait
fi
