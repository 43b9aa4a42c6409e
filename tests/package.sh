#!/usr/bin/env bash
# Tests the Debian package as an operator uses it:
#
#     tests/package.sh PACKAGE.deb    installs it, has systemd run both daemons, and removes it; as root
#
# The test runs on a machine of its own: this machine's file system below a layer of its own (overlayfs), with its own
# processes, network, mounts and control groups. systemd is process 1 there, as in a container, and the test is one of
# its units. All changes end with that machine; nothing is installed or started on this one.

set -euo pipefail

# A machine that hangs is ended after this time. Alone the test takes about 20 s; other programs may slow it down.
seconds_max=900

# Starts the machine with package $1, shows what its test says, and returns the test's status.
main() {
    local package=$1 status=0
    [ -e "$package" ] || { echo "$package: no such file; contrib/debian/package builds one"; return 1; }
    [ -x /lib/systemd/systemd ] || { echo "no systemd here: apt-get install systemd"; return 1; }
    group=$(hierarchy)
    [ -n "$group" ] || { echo "SKIPPED the package under systemd: no control groups (cgroup2) are mounted"; return 0; }
    folder=$(mktemp -d)
    group+=/manylane-package-$$
    trap clean_up EXIT
    mkdir "$group" "$folder/machine"
    cp "$package" "$folder/package.deb"
    cp "${BASH_SOURCE[0]}" "$folder/test"
    : >"$folder/said"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec timeout --signal=KILL "$seconds_max" unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup \
            "$BASH" "$folder/test" machine "$folder" >"$folder/systemd" 2>&1
    ) || status=$?
    cat "$folder/said"
    [ "$status" -eq 0 ] || sed 's/^/systemd: /' "$folder/systemd"
    [ "$status" -ne 137 ] || echo "not done after $seconds_max s"
    return "$status"
}

# With the machine's first process the kernel ends the processes left in the groups, in its own time.
clean_up() {
    for _ in {1..50}; do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.1
    done
    rm -rf "$folder"
}

# Prints where the second version of control groups is mounted.
hierarchy() {
    awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts
}

# As process 1 of the machine, whose files are in folder $1: makes its root, and becomes its systemd.
machine() {
    local folder=$1 root=$1/machine/root
    mount -t tmpfs none "$folder/machine"
    mkdir "$folder/machine/"{changes,work,root}
    mount -t overlay -o "lowerdir=/,upperdir=$folder/machine/changes,workdir=$folder/machine/work" none "$root"
    mount -t proc none "$root/proc"
    mount -t sysfs none "$root/sys"
    mount -t cgroup2 none "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 none "$root/run"
    mount -t tmpfs -o mode=1777 none "$root/tmp"
    devices "$root"
    mkdir "$root/run/package"
    mount --bind "$folder" "$root/run/package"
    # Of this machine's own units only the journal is started there.
    rm -rf "$root"/etc/systemd/system/*.wants "$root"/usr/lib/systemd/system/{sysinit,timers,multi-user}.target.wants
    rm -f "$root/usr/lib/systemd/system/sockets.target.wants/dbus.socket" "$root/usr/sbin/policy-rc.d"
    # Without this file, packages that come and go leave the index of all manual pages alone (man-db's postinst).
    rm -f "$root/var/lib/man-db/auto-update"
    : >"$root/etc/fstab"
    cat >"$root/etc/systemd/system/package.service" <<-'UNIT'
	[Unit]
	Wants=systemd-journald.service
	After=systemd-journald.service
	SuccessAction=exit
	FailureAction=exit
	[Service]
	Type=oneshot
	ExecStart=/bin/bash /run/package/test inside
	StandardOutput=append:/run/package/said
	StandardError=append:/run/package/said
	UNIT
    cd "$root"
    mount --move . /
    exec env -i container=package PATH="$PATH" chroot . /lib/systemd/systemd --unit=package.service --log-target=console
}

# The devices that programs expect, in $1/dev.
devices() {
    local dev=$1/dev name numbers
    mount -t tmpfs -o mode=755 none "$dev"
    while read -r name numbers; do
        # shellcheck disable=SC2086 # Two numbers.
        mknod -m 666 "$dev/$name" c $numbers
    done <<-'DEVICES'
	null 1 3
	zero 1 5
	full 1 7
	random 1 8
	urandom 1 9
	tty 5 0
	DEVICES
    mkdir "$dev/net" "$dev/pts" "$dev/shm"
    mknod -m 666 "$dev/net/tun" c 10 200
    mount -t devpts -o newinstance,ptmxmode=666 none "$dev/pts"
    ln -s pts/ptmx "$dev/ptmx"
    mount -t tmpfs -o mode=1777 none "$dev/shm"
    ln -s /proc/self/fd "$dev/fd"
}

# The test, as a unit of that machine.
inside() {
    local pid lock tier
    set -E
    trap 'echo "FAILED, line $LINENO: $BASH_COMMAND"' ERR
    trap '[ $? -eq 0 ] || journalctl --no-pager --output short-monotonic --lines 50' EXIT
    dpkg --install /run/package/package.deb
    # No unit is enabled or started. The user that forwards exists, without a shell.
    getent passwd manylane | grep -q ':/usr/sbin/nologin$'
    [ -z "$(find /etc/systemd -name 'manylane*')" ]
    not pgrep -x manylane
    manylane --version
    zcat /usr/share/man/man1/manylane-accelerate.1.gz | grep -q stale
    zcat /usr/share/man/man1/manylane-show.1.gz | grep -q '^.SH EXAMPLES'
    zcat /usr/share/man/man1/manylane-show.1.gz | grep -q '^.SH "EXIT STATUS"'
    zcat /usr/share/man/man5/manylane.toml.5.gz | grep -q netdev_max_backlog
    # Links of the installed pages lead to installed files, but for sources.
    (
        cd /usr/share/doc/manylane/docs
        grep -ohE '\]\([^)#: ]+\.(md|png|toml|json)' *.md | cut -c3- | grep -vE '^\.\./(bench|crates|testdata)/' | sort -u |
            while read -r link; do [ -e "$link" ] || { echo "no such file: $link"; exit 1; }; done
    )
    bash -n /usr/share/bash-completion/completions/manylane
    systemd-analyze verify --man=no manylane.service manylane-accelerate.service
    systemd-analyze security --offline=true /usr/lib/systemd/system/manylane*.service | grep Overall

    echo "--- docs/install.md, a router of its own"
    host client eth0 10.1.0.2 10.1.0.254
    ip -n client link set eth0 address 02:00:00:00:00:02 # As in the example.
    host server eth1 10.2.0.1 10.2.0.254
    commands 1
    systemctl is-enabled --quiet manylane
    systemctl show --property StatusText manylane
    holds manylane cap_net_raw
    # The users and groups that may open its sockets.
    [ "$(stat --format "%G %a" /run/manylane/manylane.sock)" = "manylane 660" ]
    [ "$(stat --format "%G %a" /run/manylane/manylane.sock.capture)" = "manylane-capture 660" ]
    useradd --groups manylane-capture watcher
    setpriv --reuid watcher --regid watcher --init-groups manylane capture -D
    manylane show ports
    through client 10.2.0.1
    # A change of the running daemon, saved, survives a restart.
    cp /etc/manylane/manylane.toml /run/new.toml
    printf '[[route]]\nprefix = "203.0.113.0/24"\nvia = "10.2.0.1"\n' >>/run/new.toml
    manylane config apply /run/new.toml --confirm-within 60s
    manylane config confirm
    manylane config save
    systemctl restart manylane
    manylane show routes | grep 203.0.113.0/24
    # systemd does not retry an invalid configuration.
    cp /etc/manylane/manylane.toml /run/valid.toml
    echo 'colour = "red"' >>/etc/manylane/manylane.toml
    not systemctl restart manylane
    is manylane Result=exit-code ExecMainStatus=2 NRestarts=0 || fails_with manylane
    journalctl --sync
    grep colour <<<"$(journalctl --unit manylane --output cat)"
    cp /run/valid.toml /etc/manylane/manylane.toml
    systemctl reset-failed manylane
    systemctl start manylane

    echo "--- docs/install.md, beside the kernel's router: the other one goes"
    ip address add 10.1.0.254/24 dev eth0 && ip address add 10.2.0.254/24 dev eth1
    sysctl --quiet --write net.ipv4.ip_forward=1
    commands 2
    is manylane ActiveState=inactive || fails_with manylane
    systemctl show --property StatusText manylane-accelerate
    # Where this machine may not lift the limit of locked memory, the unit gets no more than a container gets.
    lock=$(has cap_sys_resource || echo ,cap_ipc_lock)
    holds manylane-accelerate "cap_net_admin,cap_net_raw$lock,cap_perfmon,cap_bpf"
    until_forwarded '.forwarded >= 1'
    manylane show ports
    # The other tiers, with the privileges, system calls and devices that the unit leaves.
    ip netns exec client ethtool --offload eth0 gro on
    ip netns exec server ethtool --offload eth0 gro on
    for tier in driver workers; do
        manylane config set port.eth0.tier "$tier" && manylane config set port.eth1.tier "$tier"
        until manylane show ports --json | jq --exit-status "all(.[]; .tier == \"$tier\")"; do sleep 0.1; done
        until_forwarded ".tiers.$tier >= 2"
    done
    # After SIGKILL the kernel forwards, until systemd has restarted the daemon.
    pid=$(systemctl show --property MainPID --value manylane-accelerate)
    kill -KILL "$pid"
    through client 10.2.0.1
    until is manylane-accelerate NRestarts=1 ActiveState=active; do sleep 0.1; done
    through client 10.2.0.1
    # An interface that is missing at the start is taken up when it comes.
    ip link delete eth1
    systemctl restart manylane-accelerate
    manylane show ports | grep 'eth1: the interface does not exist'
    ip netns delete server
    host server eth1 10.2.0.1 10.2.0.254
    ip address add 10.2.0.254/24 dev eth1
    until manylane show ports --json | jq --exit-status 'all(.[]; .ingress and .egress)'; do sleep 0.1; done
    through client 10.2.0.1

    echo "--- removed, the kernel forwards"
    dpkg --remove manylane
    not pgrep -x manylane
    [ ! -e /run/manylane/manylane.sock ] && [ ! -e /usr/bin/manylane ] && [ -e /etc/manylane/manylane.toml ]
    through client 10.2.0.1
    dpkg --purge manylane
    [ ! -e /etc/manylane ]
}

# The command fails. (`!` would not end the script when the command succeeds.)
not() {
    if "$@"; then return 1; fi
}

# A host $1 behind our interface $2, with address $3 and gateway $4.
host() {
    ip netns add "$1"
    ip link add "$2" type veth peer name eth0 netns "$1"
    ip link set "$2" up
    ip -n "$1" address add "$3/24" dev eth0
    ip -n "$1" link set eth0 up
    ip -n "$1" route add default via "$4"
}

# Host $1 reaches address $2.
through() {
    ip netns exec "$1" ping -q -c 3 -i 0.2 -W 5 "$2"
}

# Pings until the counters of every port satisfy condition $1. While the daemon has had no core for too long, the kernel
# forwards.
until_forwarded() {
    until through client 10.2.0.1 && manylane show ports --json | jq --exit-status "all(.[]; $1)"; do :; done
}

# The commands of block $1 of docs/install.md, as they stand there.
commands() {
    local block
    block=$(zcat -f /usr/share/doc/manylane/docs/install.md* |
        awk -v wanted="$1" '/^```/ { if (!inside) block += $0 == "```sh installed"; inside = !inside; next } inside && block == wanted')
    [ -n "$block" ]
    echo "$block"
    bash -e <<<"$block"
}

# Unit $1 has these properties.
is() {
    local unit=$1 property
    for property in "${@:2}"; do
        [ "$(systemctl show --property "${property%%=*}" "$unit")" = "$property" ] || return 1
    done
}

# Says what unit $1 is instead, and fails.
fails_with() {
    systemctl status --no-pager --lines 40 "$1"
    return 1
}

# Process 1 has capability $1.
has() {
    capsh --decode="$(awk '/^CapBnd/ { print $2 }' /proc/1/status)" | grep -q "$1"
}

# The process of unit $1 has capabilities $2 and no others, in each thread, and is not root.
holds() {
    local thread pid
    pid=$(systemctl show --property MainPID --value "$1")
    grep -E '^(Uid|Cap|NoNewPrivs|Seccomp)' "/proc/$pid/status"
    for thread in "/proc/$pid/task/"*; do
        grep -q "^Uid:[[:space:]]*$(id -u manylane)[[:space:]]" "$thread/status"
        grep -q '^NoNewPrivs:[[:space:]]*1' "$thread/status"
        [ "$(capsh --decode="$(awk '/^CapEff/ { print $2 }' "$thread/status")" | cut -d= -f2)" = "$2" ]
    done
}

case ${1:-} in
machine) machine "$2" ;;
inside) inside ;;
*.deb) main "$1" ;;
*) sed -n '2,4s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
