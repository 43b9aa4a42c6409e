#!/bin/bash
# Process 1 of the machine that tests/emulated.sh starts: runs the tests there, and ends the machine.
#
# The second serial line gets the results. Their last line is `status N`; a machine that ends without this line has failed.
# All else goes to the console.

export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C
results=/dev/ttyS1
tests=/tests
notes=/run/notes

main() {
    local failed=0
    mkdir "$notes"
    say "kernel $(uname -r), $(nft --version), $(manylane --version)"
    virtio_net || failed=1
    flow_table plain
    flow_table front
    same flow_table plain front || failed=1
    carried flow_table-front || failed=1
    flow_table instead
    # IPsec stays with the kernel (docs/accelerate-gate.md), and these rules have no `flow add`.
    same flow_table plain instead 'ipsec|exit status' || failed=1
    carried flow_table-instead || failed=1
    flow_table bare
    differs flow_table plain bare 'ipsec|exit status' || failed=1
    if [ -d "$tests/xdp-tools" ]; then
        xdp_forward plain
        xdp_forward front
        xdp_forward behind
        same xdp_forward plain front || failed=1
        same xdp_forward plain behind || failed=1
    else
        say "SKIPPED xdp-forward: its tests could not be fetched"
    fi
    say "status $failed"
}

# The kernel's own test of its flow tables, unchanged: `plain` without manylane; `front` with `manylane accelerate` in both
# routers; `instead` with manylane, and without the rules' `flow add`, so that manylane may forward the
# connections; `bare` has these rules without manylane, and the test has to find that every packet passes the rules.
flow_table() {
    local way=$1
    (
        cd "$tests/linux/net/netfilter" || exit
        # With arguments, here the MTUs that it has without, the test does not run again with random ones. The file has half the
        # size that it has without, since the test ends a transfer after 60 s.
        with "$way" bash nft_flowtable.sh -o 9000 -l 1500 -r 2000 -s 1048576
        echo "exit status $?"
    ) |& watch "flow_table-$way"
}

# The tests of xdp-forward, unchanged: `front` with manylane on the interfaces before xdp-forward comes, `behind` after. The
# tests give a server 2 s to start, which is little here: after a failure all run once more.
xdp_forward() {
    local way=$1 try
    for try in 1 2; do
        rm -f "$notes/xdp_forward-$way"
        (
            cd "$tests/xdp-tools" || exit
            with "$way" env XDP_FORWARD=xdp-forward XDP_LOADER=xdp-loader ./test_runner.sh ./test-xdp-forward.sh
            echo "exit status $?"
        ) |& watch "xdp_forward-$way"
        grep -q '^FAIL' "$notes/xdp_forward-$way" || break
        say "try $try failed"
    done
}

# Whether the kernel's counters have each tier's packets on virtio-net as the table in docs/tiers.md says. Pings of both
# families pass from one wire to the other, by a router without rules.
virtio_net() {
    local tier row name read all pid wrong=0
    local -A before seen
    say "--- virtio_net"
    virtio_hosts
    for tier in kernel ingress driver; do
        ip netns exec router manylane accelerate lan wan --tier "$tier" --socket "$virtio_socket" </dev/null &
        pid=$!
        virtio_has_tier "$tier" || { say "FAIL: virtio-net does not have the tier $tier"; wrong=1; }
        virtio_ping 3 # Neighbours are known then.
        while IFS='|' read -r name read all; do before[$name]=$(eval "$read"); done <<<"$virtio_rows"
        virtio_ping 100 || wrong=1
        while IFS='|' read -r name read all; do
            seen[$name]+=" | $(virtio_cell $(($(eval "$read") - ${before[$name]})) "$all")"
        done <<<"$virtio_rows"
        kill "$pid" && wait "$pid"
    done
    while IFS='|' read -r name read all; do
        row="| $name${seen[$name]} |"
        if grep -qxF "$row" "$tests/tiers.md"; then
            say "PASS: $row"
        else
            say "FAIL: docs/tiers.md has to say: $row"
            wrong=1
        fi
    done <<<"$virtio_rows"
    for name in client router server; do ip netns del "$name"; done
    return "$wrong"
}

virtio_socket=/run/virtio.sock
# A counter's name, how to read it, and by how much it grows with 100 pings of each family, there and back.
virtio_rows='`ip -s link`, RX of the ingress interface|virtio_statistic lan rx|200
`ip -s link`, TX of the egress interface|virtio_statistic wan tx|200
`ethtool -S`, `rx0_xdp_packets` of the ingress interface|virtio_ethtool lan rx0_xdp_packets|200
`ethtool -S`, `rx0_xdp_redirects` of the ingress interface|virtio_ethtool lan rx0_xdp_redirects|200
`ethtool -S`, `tx0_xdp_tx` of the egress interface|virtio_ethtool wan tx0_xdp_tx|200
`/proc/net/snmp`, `Ip ForwDatagrams`|virtio_snmp4|200
`/proc/net/snmp6`, `Ip6OutForwDatagrams`|virtio_snmp6|200
`manylane show ports`, `ifHCInUcastPkts` of the ingress interface|virtio_shown 0 ifHCInUcastPkts|200
`manylane show ports`, `ifHCOutUcastPkts` of the egress interface|virtio_shown 1 ifHCOutUcastPkts|200'

# A client, a router and a server, on the wires of eth0 with eth1, and of eth2 with eth3.
virtio_hosts() {
    local place device host name net octet
    modprobe -a virtio_pci virtio_net
    for place in '0 client eth0 1 1' '1 router lan 1 254' '2 router wan 2 254' '3 server eth0 2 1'; do
        read -r device host name net octet <<<"$place"
        ip netns list | grep -q "^$host" || ip netns add "$host"
        # By its Ethernet address: the kernel numbers devices as it finds them.
        device=$(grep -l "52:54:00:00:00:0$device" /sys/class/net/*/address | cut -d/ -f5)
        ip link set "$device" netns "$host" name "$name"
        ip -n "$host" address add "10.$net.0.$octet/24" dev "$name"
        ip -n "$host" address add "2001:db8:$net::$octet/64" dev "$name" nodad
        ip -n "$host" link set "$name" up
    done
    ip netns exec router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip -n client route add default via 10.1.0.254
    ip -n client route add default via 2001:db8:1::254
    ip -n server route add default via 10.2.0.254
    ip -n server route add default via 2001:db8:2::254
}

# Waits until both ports have tier $1: emulated, the verifier alone takes many seconds.
virtio_has_tier() {
    local try
    for try in {1..120}; do
        manylane show ports --json --socket "$virtio_socket" 2>/dev/null </dev/null |
            jq -e --arg tier "$1" 'length == 2 and all(.[]; .tier == $tier)' >/dev/null && return
        sleep 1 # The daemon announces no tier to others.
    done
    manylane show ports --socket "$virtio_socket" </dev/null
    return 1
}

virtio_ping() {
    local address said
    for address in 10.2.0.1 2001:db8:2::1; do
        said=$(ip netns exec client ping -q -c "$1" -i 0.01 "$address")
        grep -q " $1 received" <<<"$said" || { say "FAIL: $said"; return 1; }
    done
}

# Whether a counter that grew by $1 has the $2 packets; neighbours add some, and others are none.
virtio_cell() {
    if [ "$1" -ge "$2" ] && [ "$1" -le $(($2 + $2 / 4)) ]; then
        echo yes
    elif [ "$1" -le $(($2 / 4)) ]; then
        echo no
    else
        echo "$1 of $2"
    fi
}

virtio_statistic() {
    ip -n router -s -j link show "$1" | jq ".[0].stats64.$2.packets"
}

virtio_ethtool() {
    ip netns exec router ethtool -S "$1" | awk -v name="$2:" '$1 == name { print $2; found = 1 } END { if (!found) print 0 }'
}

virtio_snmp4() {
    ip netns exec router awk '$1 == "Ip:" && !at { for (at = 1; $at != "ForwDatagrams"; at++); next }
        $1 == "Ip:" { print $at }' /proc/net/snmp
}

virtio_snmp6() {
    ip netns exec router awk '$1 == "Ip6OutForwDatagrams" { print $2 }' /proc/net/snmp6
}

virtio_shown() {
    manylane show ports --json --socket "$virtio_socket" </dev/null | jq ".[$1].interface.$2"
}

# Runs a command with the shims of this way, and ends the daemons that they started.
with() {
    local way=$1 pid
    shift
    rm -rf /run/manylane
    mkdir -p /run/manylane
    if [ "$way" = plain ]; then
        "$@"
    else
        WAY=$way PATH=/tests/shims:$PATH "$@"
    fi
    local status=$?
    for pid in /run/manylane/*.pid; do
        [ ! -e "$pid" ] || kill "$(<"$pid")"
    done
    cat /run/manylane/errors 2>/dev/null
    tail -n 40 /run/manylane/*.log 2>/dev/null
    return "$status"
}

# Writes what a test says to the console, and its checks to a file and to the results, each with the number of packets
# that manylane has forwarded since the last one.
watch() {
    local line what
    say "--- $1"
    while IFS= read -r line; do
        echo "$1: $line"
        case $line in
            PASS:* | FAIL:* | SKIP:* | ERROR:* | "exit status"*) ;;
            *"[test_"*) line=$(awk '{ print $2 ": " $1 }' <<<"$line") ;;
            *) continue ;;
        esac
        echo "$line" >>"$notes/$1"
        what=$(forwarded "$1")
        say "$line${what:+ (manylane forwarded: $what)}"
    done
}

# The packets that each daemon has forwarded since the last call.
forwarded() {
    local socket name now all=()
    for socket in /run/manylane/*.sock; do
        [ -S "$socket" ] || continue
        name=$(basename "$socket" .sock)
        now=$(manylane show ports --json --socket "$socket" </dev/null | jq '[.[].forwarded // 0] | add')
        [ -n "$now" ] || continue
        all+=("${name%-*} $((now - $(cat "$notes/$name" 2>/dev/null || echo 0)))")
        echo "$now" >"$notes/$name"
        [ "$now" -eq 0 ] || : >"$notes/$1.forwarded"
    done
    echo "${all[*]}"
}

# Whether manylane forwarded anything at all in test $1.
carried() {
    [ -e "$notes/$1.forwarded" ] || { say "$1: manylane forwarded nothing: the test has tested nothing"; return 1; }
}

# Whether the checks of two ways have the same verdicts, but for checks that match pattern $4.
same() {
    if diff <(verdicts "$1-$2" | grep -vE "${4:-^$}") <(verdicts "$1-$3" | grep -vE "${4:-^$}") >"$results"; then
        say "$1: the same verdicts, $2 and $3${4:+, but for $4}"
    else
        return 1
    fi
}

# The opposite.
differs() {
    if diff <(verdicts "$1-$2" | grep -vE "$4") <(verdicts "$1-$3" | grep -vE "$4") >/dev/null; then
        say "$1: no check tells $3 from $2: the test would not miss manylane"
        return 1
    fi
    say "$1: $3 fails, as it has to"
}

# Figures in a message differ from run to run.
verdicts() {
    sed -E 's/: (original|reply) counter .*//; s/ counters do not match.*//' "$notes/$1"
}

say() {
    echo "$*" >"$results"
    echo "== $*"
}

boot() {
    mount -t proc none /proc
    mount -t sysfs none /sys
    mount -t devtmpfs none /dev
    mount -t tmpfs none /tmp
    mount -t tmpfs none /run
    mount -t bpf none /sys/fs/bpf
    ln -s /proc/self/fd /dev/fd
    ln -s /proc/self/fd/0 /dev/stdin
    exec </dev/null >/dev/console 2>&1
    stty -F "$results" -opost
    ip link set lo up
    depmod -a
    # The selftest reads a setting of this module before it loads rules.
    modprobe -a nf_log_syslog nft_flow_offload nf_flow_table_inet nf_conntrack_netlink
}

boot
main
echo o >/proc/sysrq-trigger
sleep infinity
