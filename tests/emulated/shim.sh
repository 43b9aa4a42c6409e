#!/bin/bash
# Stands in PATH for `nft` and `xdp-forward`: starts `manylane accelerate` at the right moment, and runs the program.
#
# WAY is `front`, `behind`, `bare` or `instead`; guest.sh says what each means.

name=${0##*/}
program=$(PATH=/usr/sbin:/usr/bin type -P "$name")

# Starts a daemon, known as $1, for the other arguments, and waits until it has checked these interfaces.
start() {
    local daemon=/run/manylane/$1
    shift
    [ ! -e "$daemon.pid" ] || return 0
    manylane accelerate "$@" --wait --socket "$daemon.sock" </dev/null >>"$daemon.log" 2>&1 &
    echo $! >"$daemon.pid"
    until manylane show ports --socket "$daemon.sock" </dev/null >/dev/null 2>&1; do
        kill -0 $! 2>/dev/null || { echo "ERROR: manylane ended: $(<"$daemon.log")" >>/run/manylane/errors; return; }
        sleep 0.1
    done
}

# Ends that daemon, and waits for its end.
stop() {
    local daemon=/run/manylane/$1 pid
    [ -e "$daemon.pid" ] || return 0
    pid=$(<"$daemon.pid")
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    rm "$daemon.pid"
}

# In both routers of the kernel's test, before the first rules are loaded: manylane meets each change of them.
routers() {
    local namespace router
    namespace=$(ip netns identify $$)
    case $namespace in nsr1-*) ;; *) return ;; esac
    for router in $(ip netns list | awk '/^nsr[12]-/ { print $1 }'); do
        [ -e "/run/manylane/$router.pid" ] || ip netns exec "$router" "$0" --start "$router" veth0 veth1 veth0.10 br0
    done
}

# Without the kernel's flow table: what rules do to a connection, they do to its first packet, as `manylane doctor --firewall`
# advises.
first='s/ct mark set 1 flow add @[a-z0-9]+/ct state new ct mark set 1/'

case "$name $1" in
    *" --start")
        shift
        start "$@"
        ;;
    "nft -f")
        [ "$WAY" = bare ] || routers
        case "$WAY $2" in
            "bare -" | "instead -") exec "$program" -f <(sed -E "$first") ;;
            *) exec "$program" "$@" ;;
        esac
        ;;
    "nft -a")
        case "$WAY $*" in
            "bare "*" forward ip dscp set cs3" | "instead "*" forward ip dscp set cs3")
                exec "$program" "${@:1:6}" ct state new "${@:7}"
                ;;
            *) exec "$program" "$@" ;;
        esac
        ;;
    "xdp-forward load")
        interfaces=()
        for argument in "$@"; do
            ! ip link show dev "$argument" >/dev/null 2>&1 || interfaces+=("$argument")
        done
        if [ "$WAY" = front ]; then
            start router "${interfaces[@]}"
            exec "$program" "$@"
        fi
        stop router
        "$program" "$@" || exit
        start router "${interfaces[@]}"
        ;;
    *) exec "$program" "$@" ;;
esac
