#!/usr/bin/env bash
# Tests manylane on a distribution's kernel with flow tables, in an emulated machine:
#
#     tests/emulated.sh MANYLANE     with this program, as `target/debug/manylane`
#
# The machine has Debian's kernel and programs, and runs tests of others, unchanged: the kernel's nft_flowtable.sh, and the
# tests of xdp-forward. Each runs without manylane and with it; guest.sh says how, and the verdicts have to be the same. The
# machine has four virtio-net devices, too, and compares their counters with the table in docs/tiers.md.
#
# Needs `apt-get install qemu-system-x86 cpio xz-utils`, and a network for Debian's packages and crates.io: 230 MB at first,
# kept in ~/.cache/manylane. apt checks the signatures of Debian's packages, cargo the sum of the crate. Root and KVM are not
# needed: nothing is installed, all packets stay in the machine, and one virtual processor is emulated. The tests take about
# 20 minutes. CONSOLE=FILE keeps what the machine writes to its console.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

suite=trixie
cache=${XDG_CACHE_HOME:-$HOME/.cache}/manylane/emulated-$suite
# The programs that the tests and guest.sh call; apt adds the packages that they depend on.
packages=(base-files bash bpftool conntrack coreutils diffutils ethtool findutils gawk grep hostname iproute2 iputils-ping jq
    kmod mount nftables procps sed socat util-linux xdp-tools)
# This crate has the sources of xdp-tools 1.6, with their tests.
crate=libxdp-sys version=0.2.4+1.6.0
# The whole run; a machine that hangs is ended after this time.
seconds_max=2400

main() {
    local manylane=${1:?usage: tests/emulated.sh MANYLANE} work
    local tool
    for tool in apt-get:apt dpkg-deb:dpkg qemu-system-x86_64:qemu-system-x86 cpio:cpio xz:xz-utils strip:binutils; do
        command -v "${tool%:*}" >/dev/null || { echo "no ${tool%:*} here: apt-get install ${tool#*:}"; return 2; }
    done
    [ "$(uname -m)" = x86_64 ] || { echo "the machine is an amd64, as the program has to be"; return 2; }
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || { echo "no keys: apt-get install debian-archive-keyring"; return 2; }
    manylane=$(readlink -f "$manylane")
    [ -x "$manylane" ] || { echo "$manylane: no such program; cargo build -p manylane builds one"; return 2; }
    mkdir -p "$cache"
    fetch
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # This folder.
    trap "rm -rf '$work'" EXIT
    image "$work" "$manylane"
    start "$work"
}

# Debian's packages, with apt's lists and settings of their own.
fetch() {
    local apt=$cache/apt kernel release
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" >"$apt/sources"
    cat >"$apt/settings" <<-SETTINGS
	Dir::Etc::sourcelist "$apt/sources";
	Dir::Etc::sourceparts "/dev/null";
	Dir::Etc::preferencesparts "/dev/null";
	Dir::State::lists "$apt/lists";
	Dir::State::status "$apt/status";
	Dir::Cache "$apt";
	APT::Architecture "amd64";
	APT::Architectures { "amd64"; };
	APT::Install-Recommends "false";
	APT::Sandbox::User "";
	Acquire::Languages "none";
	Debug::NoLocking "true";
	SETTINGS
    export APT_CONFIG=$apt/settings
    # Names the packages and the version that have been fetched.
    [ "$(cat "$cache/done" 2>/dev/null)" != "${packages[*]} $version" ] || return 0
    rm -rf "$cache/tests" "$apt"/*.deb "$apt"/archives/*.deb
    apt-get --quiet=2 update
    apt-get --quiet=2 --yes --download-only install "${packages[@]}"
    # The newest kernel of the suite, and the source of the same version: its tests belong to it.
    kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
    release=$(apt-cache show "$kernel" | awk '/^Version:/ { print $2; exit }')
    (
        cd "$apt"
        apt-get --quiet=2 download "$kernel" "linux-source-$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$release")=$release"
    )
    tests_of_linux
    tests_of_xdp_tools
    echo "${packages[*]} $version" >"$cache/done"
}

tests_of_linux() {
    local source=("$cache"/apt/linux-source-*.deb) selftests=tools/testing/selftests/net
    mkdir -p "$cache/tests/linux"
    echo "unpacking the kernel's tests: a minute"
    dpkg-deb --fsys-tarfile "${source[0]}" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | xz -dc |
        tar -x -C "$cache/tests/linux" --strip-components 4 --wildcards "*/$selftests/lib.sh" "*/$selftests/netfilter/*.sh"
    rm "${source[0]}"
}

tests_of_xdp_tools() {
    local work tools
    command -v cargo >/dev/null || { echo "SKIPPED xdp-forward: no cargo, which fetches its tests"; return 0; }
    work=$(mktemp -d)
    mkdir "$work/src"
    : >"$work/src/lib.rs"
    printf '[package]\nname = "tests"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n%s = "=%s"\n' \
        "$crate" "$version" >"$work/Cargo.toml"
    (cd "$work" && cargo --quiet vendor >/dev/null)
    tools=$work/vendor/$crate/xdp-tools
    mkdir -p "$cache/tests/xdp-tools"
    cp -p "$tools"/lib/testing/*.sh "$tools/xdp-forward/tests/test-xdp-forward.sh" "$cache/tests/xdp-tools"
    # Of the programs that other tests need, the machine has none.
    echo 'NEEDED_TOOLS="ethtool ip ping sed nft socat timeout"' >"$cache/tests/xdp-tools/test_config.sh"
    rm -rf "$work"
}

# The machine's first file system, in $1, with program $2.
image() {
    local root=$1/root modules package
    mkdir "$root"
    # This one has the links /bin and /lib.
    dpkg-deb -x "$cache"/apt/archives/base-files_*.deb "$root"
    for package in "$cache"/apt/archives/*.deb; do
        dpkg-deb -x "$package" "$root"
    done
    rm -rf "$root"/usr/share/{doc,man,locale,info}
    ln -sf gawk "$root/usr/bin/awk"
    dpkg-deb -x "$cache"/apt/linux-image-*.deb "$1/kernel"
    modules=$(cd "$1/kernel/usr/lib" && echo modules/*)
    mkdir -p "$root/usr/lib/$modules/kernel/drivers/net"
    (
        cd "$1/kernel/usr/lib/$modules"
        cp modules.* "$root/usr/lib/$modules"
        cp -r kernel/{net,lib,crypto,arch} "$root/usr/lib/$modules/kernel"
        cp kernel/drivers/net/{veth,virtio_net,net_failover}.* "$root/usr/lib/$modules/kernel/drivers/net"
        cp -r --parents kernel/drivers/virtio "$root/usr/lib/$modules" # Where it is no part of the kernel itself.
        # The program that loads them would need liblzma, which its package only recommends.
        find "$root/usr/lib/$modules" -name '*.xz' -exec xz -d {} +
    )
    cp -r "$cache/tests" "$root/tests"
    cp ../docs/tiers.md "$root/tests"
    mkdir "$root/tests/shims"
    cp emulated/shim.sh "$root/tests/shims/nft"
    cp emulated/shim.sh "$root/tests/shims/xdp-forward"
    chmod +x "$root"/tests/shims/*
    strip -o "$root/usr/bin/manylane" "$2"
    cp emulated/guest.sh "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0) >"$1/image"
}

# Starts the machine, and shows its results as they come.
start() {
    local status number devices=()
    # Two wires with two devices at each.
    for number in 0 1 2 3; do
        devices+=(-netdev "hubport,id=wire$number,hubid=$((number / 2))")
        devices+=(-device "virtio-net-pci,netdev=wire$number,mac=52:54:00:00:00:0$number")
    done
    : >"$1/results"
    tail -f --pid=$$ "$1/results" &
    timeout "$seconds_max" qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 1 -m 2048 -nodefaults -no-reboot \
        -nographic -kernel "$1"/kernel/boot/vmlinuz-* -initrd "$1/image" \
        -append "console=ttyS0 quiet panic=-1 rdinit=/init" \
        "${devices[@]}" -serial "file:$1/console" -serial "file:$1/results" </dev/null || true
    status=$(sed -n 's/^status //p' "$1/results")
    [ -z "${CONSOLE:-}" ] || cp "$1/console" "$CONSOLE"
    [ -n "$status" ] || { tail -n 50 "$1/console"; echo "FAILED the machine ended before its tests"; return 1; }
    return "$status"
}

main "$@"
