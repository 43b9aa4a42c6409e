#!/usr/bin/env bash
# Everything a change has to pass: `./ci.sh` runs all steps, `./ci.sh STEP...` some of them.
#
# The last line of the output is "N passed, M failed": the tests of all steps, and one failure for
# each step that failed otherwise. The exit status is 0 only if nothing failed. With CI=true a line
# that begins with SKIPPED is a failure too: there the machine has what it takes.
#
# Needs Rust with clippy and rustfmt. As root on Debian, running all steps first installs the other
# tools. What root may do only (network namespaces, BPF) is skipped for others, saying so.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null

# Slow mirrors: cargo's default of 3 gave up in practice.
export CARGO_NET_RETRY="${CARGO_NET_RETRY:-10}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
# What is built once need not be ready to be built again.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"

target=${CARGO_TARGET_DIR:-$PWD/target}
# A run that hangs ends, with a failure and what was said until then.
seconds_max=4500
steps=(fmt clippy build test doc loom bpf fuzz-smoke netns docs bench-smoke deb)
packages="iperf3 curl iputils-ping iproute2 procps nftables iptables frr bird2 tcpdump tshark libpcap0.8 ethtool jq
    clang llvm libbpf-dev gcc g++ adduser chromium systemd libcap2-bin"

# --- The steps, one function each. -----------------------------------------------------------------

# rustfmt has nothing to change, in all workspaces.
step_fmt() {
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo fmt --manifest-path bench/counted/Cargo.toml --check
}

# clippy has nothing to say; also about what only a loom build compiles, or one that counts.
step_clippy() {
    cargo clippy --workspace --all-targets -- -D warnings
    under_loom cargo clippy -p manylane-sync --tests -- -D warnings
    counting cargo clippy -p manylane-sync --all-targets -- -D warnings
    counting cargo clippy --manifest-path bench/counted/Cargo.toml --locked --all-targets -- -D warnings
}

# All targets once, optimised a little: what unit tests, scenarios and the benches' trial use.
step_build() {
    cargo build --workspace --all-targets
}

# All tests but those of the other steps: unit tests, documentation, and what needs no root.
step_test() {
    local name tests=()
    for name in $(test_targets '.name != "manylane-io"' 'test("^(netns|accelerate)_") | not'); do
        tests+=(--test "$name")
    done
    local status=0
    cargo test --workspace --no-fail-fast --lib --bins --examples "${tests[@]}" -- \
        --show-output || status=1
    cargo test --workspace --no-fail-fast --doc || status=1
    return "$status"
}

# The documentation builds, and its links lead somewhere.
step_doc() {
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --workspace --no-deps
}

# The protocols of manylane-sync in every interleaving (crates/manylane-sync/tests/loom.rs).
step_loom() {
    under_loom cargo test -p manylane-sync --profile quick --test loom
}

# The BPF sources compile, to the instructions in the repository; another clang may find others, and
# then their verdicts must be the same. Those of the program that forwards are for a later processor.
step_bpf() {
    local source
    for source in crates/manylane-io/src/bpf/*.bpf.c; do
        same_program "$source" bpf
    done
    for source in crates/manylane-io/src/bpf/fast/*.bpf.c; do
        same_program "$source" 'fast*' -mcpu=v3
    done
}

# Each fuzz target builds, and survives FUZZ_SECONDS (10) from its corpus.
step_fuzz_smoke() {
    local host name program found
    if ! PATH="$target/tools/bin:$PATH" cargo fuzz --version >/dev/null 2>&1; then
        # With its own target folder, a second installation after a failed one continues.
        CARGO_TARGET_DIR=$target/tools/target \
            cargo install cargo-fuzz --version 0.13.2 --locked --root "$target/tools"
    fi
    host=$(rustc -vV | sed -n 's/^host: //p')
    # No sanitizer: those need a nightly compiler. Coverage feedback works without.
    PATH="$target/tools/bin:$PATH" cargo fuzz build --sanitizer none --target-dir "$target/fuzz"
    for name in $(PATH="$target/tools/bin:$PATH" cargo fuzz list); do
        program=$target/fuzz/$host/release/$name
        # What libFuzzer finds goes into its first folder, the seeds stay as they are. Started
        # directly: `cargo fuzz run` would wait for any other cargo's lock.
        found=$(mktemp -d -p "$work")
        mkdir -p "fuzz/artifacts/$name"
        "$program" "$found" "fuzz/corpus/$name" -max_total_time="${FUZZ_SECONDS:-10}" \
            -artifact_prefix="fuzz/artifacts/$name/" -print_final_stats=1 -verbosity=0 2>&1 |
            grep -v '# Uses: ' # The dictionary it would recommend.
    done
}

# Whole systems in network namespaces, the kernel on both ends; and the tests of manylane-io, alike. Of the whole
# workspace, as the other steps: of one package, other features would be wanted of others, and built anew.
step_netns() {
    local name tests=()
    root "scenarios in network namespaces" || return 0
    for name in $(test_targets '.name == "manylane"' 'test("^(netns|accelerate)_")') \
        $(test_targets '.name == "manylane-io"' 'true'); do
        tests+=(--test "$name")
    done
    cargo test --workspace --no-fail-fast "${tests[@]}" -- --show-output --test-threads=1
}

# The links of the documentation lead somewhere, and the commands of its pages do what they say.
step_docs() {
    tests/docs.sh links
    root "the commands of docs/*.md" || return 0
    [ -x "$target/debug/manylane" ] || cargo build --bin manylane
    tests/docs.sh pages
}

# The benches run, tiny, and what they print can be read by a machine. `scale` fails when workers write
# lines that they share (I5), and the tests of what it counts by show that it would.
step_bench_smoke() {
    local question
    step_build
    counting cargo test -p manylane-sync --profile quick --lib
    counting cargo test --manifest-path bench/counted/Cargo.toml --release --locked
    # `seed all` asks `scale`, too.
    for question in fib forward tcp veth "seed all --html $work/report.html"; do
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
    grep -q '<section id="model">' "$work/report.html" && ! grep -q 'Not measured: ' "$work/report.html" || {
        echo "the report is not whole"
        return 1
    }
}

# The Debian package, left in target/debian: built, and tried under systemd on a machine of its own. Of DEB_PROFILE: a
# release build, unless all steps run, which try what `build` built.
step_deb() {
    local package
    package=$(contrib/debian/package "${DEB_PROFILE:-release}")
    dpkg-deb --info "$package"
    if command -v lintian >/dev/null; then
        lintian --allow-root --fail-on error "$package"
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

# Runs a command with atomics that count, in the target folder where the bench looks for them.
counting() {
    RUSTFLAGS="${RUSTFLAGS:-} --cfg manylane_counted" CARGO_TARGET_DIR="$target/counted" "$@"
}

# The names of the test targets of the packages, and of the names, that two filters let pass.
test_targets() {
    cargo metadata --no-deps --format-version 1 | jq -r ".packages[] | select($1) | .targets[]
        | select(.kind == [\"test\"]) | .name | select($2)" | sort -u
}

# BPF source $1, compiled with the options behind $2, is what was committed; or passes the tests named $2.
same_program() {
    local source=$1 tests=$2 committed=${1%.c}.o folder object
    folder=$(mktemp -d -p "$work")
    object=$folder/$(basename "$committed")
    clang -O2 -g "${@:3}" -fdebug-compilation-dir=. -target bpf -I"/usr/include/$(uname -m)-linux-gnu" \
        -c "$source" -o "$object"
    llvm-strip -g "$object"
    if diff <(instructions "$object") <(instructions "$committed"); then
        echo "$source: the same instructions"
    elif root "the verdicts of $source"; then
        MANYLANE_BPF_OBJECT=$object cargo test -p manylane-io --test "$tests" -- --show-output
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

# Installs the Debian packages that are missing. Others than root see what fails without them.
install_packages() {
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
    if [ -e "$policy" ]; then # Somebody has a policy, which stays.
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || status=$?
    rm -f "$policy"
    return "$status"
}

# Runs function $2 as step $1. Its failure is counted, and the next step runs all the same.
run() {
    local before=$SECONDS status
    current=$1
    echo
    echo "=== $1"
    set +e
    # In a process group of its own, so that what hangs in it is ended with it.
    timeout --kill-after=30 "$((seconds_max > SECONDS ? seconds_max - SECONDS : 1))" bash -c "set -euo pipefail; $2" 2>&1 | tee "$work/step"
    status=${PIPESTATUS[0]}
    [ "$status" -ne 124 ] || echo "=== $1: ended, $seconds_max s have passed"
    set -e
    cat "$work/step" >>"$work/log"
    if [ "$status" -ne 0 ]; then
        echo "=== $1 FAILED (status $status) after $((SECONDS - before)) s"
        # Failed tests count themselves.
        [ "$(count 6 "$work/step")" -gt 0 ] || others_failed=$((others_failed + 1))
        failed=1
    else
        echo "=== $1: $((SECONDS - before)) s"
    fi
    current=
}

# The sum of column $1 of cargo's "test result: ok. N passed; M failed; ..." in file $2.
count() {
    awk -v column="$1" '/^test result: / { sum += $column } END { print sum + 0 }' "$2"
}

# The last words, whatever happened.
finish() {
    local status=$? skipped passed broken
    trap - EXIT
    set +e
    if [ -n "$current" ]; then # Interrupted within a step.
        others_failed=$((others_failed + 1))
        [ ! -e "$work/step" ] || cat "$work/step" >>"$work/log"
    fi
    if [ "${CI:-}" = true ] && skipped=$(grep -E '^[[:space:]]*SKIPPED\b' "$work/log"); then
        echo "=== skipped, which is a failure with CI=true:"
        echo "$skipped"
        others_failed=$((others_failed + $(wc -l <<<"$skipped")))
    fi
    passed=$(count 4 "$work/log")
    broken=$(($(count 6 "$work/log") + others_failed))
    rm -rf "$work"
    [ "$failed" -eq 0 ] && [ "$broken" -eq 0 ] || [ "$status" -ne 0 ] || status=1
    echo "$passed passed, $broken failed"
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
: >"$work/log"
export packages target work
# shellcheck disable=SC2046 # One word each.
export -f $(compgen -A function)
current= failed=0 others_failed=0
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ "$#" -eq 0 ]; then
    run packages install_packages
    set -- "${steps[@]}"
    # What it tries is the package; for a file to use, the step is run alone.
    export DEB_PROFILE="${DEB_PROFILE:-dev}"
fi
for step in "$@"; do
    run "$step" "step_${step//-/_}"
done
