#!/usr/bin/env bash
# Makes testdata/captures/*.pcap and from these the seeds in fuzz/corpus/wire (corpus/forward is a link
# to it): real traffic between two Linux hosts, network namespaces on one veth pair. Needs root; leaves
# nothing behind.
#
#     sudo fuzz/make-corpus.sh
#
# Each capture is bounded (frames, snapshot length). One frame of each kind becomes a seed, named for its
# kind. Ports, sequence numbers and times differ from run to run: the results are committed, and this
# script documents their origin.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" -eq 0 ] || { echo "make-corpus: needs root, to make network namespaces" >&2; exit 1; }

captures=testdata/captures
seeds=fuzz/corpus/wire
a=seed-a-$$ b=seed-b-$$ # Our namespaces.
work=$(mktemp -d)
pids=()

cleanup() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait
    ip netns delete "$a" 2>/dev/null || true
    ip netns delete "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

in_a() { ip netns exec "$a" "$@" >/dev/null; }
in_b() { ip netns exec "$b" "$@"; }

# Captures what function $2 causes into $1.pcap: at most 80 frames on link a0, 1600 bytes of each.
capture() {
    local pid
    : >"$work/tcpdump"
    # Not by `in_a`: the process in the background is to be tcpdump itself, to be stopped by its id.
    ip netns exec "$a" tcpdump -i a0 -Z root -U --immediate-mode -s 1600 -c 80 \
        -w "$captures/$1.pcap" 2>"$work/tcpdump" &
    pid=$!
    pids+=("$pid")
    until grep -q 'listening on' "$work/tcpdump"; do
        kill -0 "$pid" # Ends the script, by `set -e`, if tcpdump did not start.
        sleep 0.05
    done
    "$2"
    # Packets still under way, such as the last FIN. tcpdump may have ended by its count.
    sleep 0.3
    kill "$pid" 2>/dev/null || true
    wait "$pid" || true
}

# Waits until a program listens on TCP port $1 in b.
listening() {
    until in_b ss -Hltn "sport = :$1" | grep -q .; do
        sleep 0.05
    done
}

# --- The hosts. ------------------------------------------------------------------------------------

ip netns add "$a"
ip netns add "$b"
ip -n "$a" link add a0 address 02:00:00:00:00:0a type veth \
    peer name b0 netns "$b" address 02:00:00:00:00:0b
ip -n "$a" address add 192.0.2.1/24 dev a0
ip -n "$b" address add 192.0.2.2/24 dev b0
ip -n "$a" address add 2001:db8::1/64 dev a0 nodad
ip -n "$b" address add 2001:db8::2/64 dev b0 nodad

# --- The traffic. ----------------------------------------------------------------------------------

# Links coming up: multicast listener reports (behind a hop-by-hop header), duplicate address
# detection, router solicitations; then the questions and answers of ARP and ND.
neighbours() {
    ip -n "$a" link set lo up
    ip -n "$b" link set lo up
    ip -n "$b" link set b0 up
    in_a ping -q -c 1 -W 3 192.0.2.2
    in_a ping -q -c 1 -W 3 2001:db8::2
    in_a arping -q -c 1 -U -I a0 192.0.2.1 2>/dev/null || true # Gratuitous, where arping is.
    sleep 1.5 # The link-local addresses are detected for a second.
}

# Echoes: empty, odd, default, full and in fragments, both versions; and one with IPv4 options.
echoes() {
    local size
    for size in 0 7 56 1452 3000; do
        in_a ping -q -c 1 -W 3 -s "$size" 192.0.2.2
        in_a ping -q -c 1 -W 3 -s "$size" 2001:db8::2
    done
    in_a ping -q -c 1 -W 3 -R 192.0.2.2
    in_a ping -q -c 1 -W 3 -M do -Q 0x2e 192.0.2.2
    in_a ping -q -c 1 -W 3 -F 0xbeef 2001:db8::2
}

# Without a listener: unreachable ports (ICMP errors, with their quotations), refused connections.
refusals() {
    in_a bash -c 'echo lost >/dev/udp/192.0.2.2/9' || true
    in_a bash -c 'echo lost >/dev/udp/2001:db8::2/9' || true
    in_a bash -c ': >/dev/tcp/192.0.2.2/9' 2>/dev/null || true
    in_a bash -c ': >/dev/tcp/2001:db8::2/9' 2>/dev/null || true
}

# TCP, from handshake to FIN.
tcp() {
    in_a curl -sS -o "$work/page" http://192.0.2.2:8000/
    in_a curl -sS -o "$work/page" 'http://[2001:db8::2]:8000/'
}

# UDP at a low rate, with iperf3's own connection beside it.
udp() {
    in_a iperf3 -u -c 192.0.2.2 -k 4 -l 200
    in_a iperf3 -u -c 2001:db8::2 -k 4 -l 1200
}

# One echo and one UDP datagram through each kind of tunnel this kernel has.
tunnels() {
    local kind number=0 spec
    for kind in vlan vxlan geneve gre gretap ip6gre ipip sit ip6tnl; do
        number=$((number + 1))
        case $kind in
        vlan) spec="link %0 type vlan id 5" ;;
        vxlan) spec="type vxlan id 7 remote %r dstport 4789" ;;
        geneve) spec="type geneve id 7 remote %r" ;;
        ip6gre) spec="type ip6gre local %l remote %r" ;;
        ip6tnl) spec="type ip6tnl mode any local %l remote %r" ;;
        *) spec="type $kind local %l remote %r" ;;
        esac
        tunnel "$a" a0 "$number" 1 2 "$kind" "$spec" && tunnel "$b" b0 "$number" 2 1 "$kind" "$spec" || {
            echo "make-corpus: no $kind here"
            continue
        }
        in_a ping -q -c 1 -W 3 "198.51.100.$((number * 4 + 2))" || true
        in_a bash -c "echo through >/dev/udp/198.51.100.$((number * 4 + 2))/9" || true
        in_a ping -q -c 1 -W 3 "2001:db8:$number::2" || true
        ip -n "$a" link delete t0
        ip -n "$b" link delete t0
    done
}

# Makes one end, t0, of tunnel number $3 in namespace $1 over link $2: ours is host $4, theirs $5.
tunnel() {
    local spec=$7 net=192.0.2.
    [[ $6 != ip6* ]] || net=2001:db8::
    spec=${spec//%0/$2}
    spec=${spec//%l/$net$4}
    spec=${spec//%r/$net$5}
    # shellcheck disable=SC2086 # The words of the specification.
    ip -n "$1" link add t0 $spec 2>/dev/null || return 1
    ip -n "$1" address add "198.51.100.$(($3 * 4 + $4))/30" dev t0 || return 1
    ip -n "$1" address add "2001:db8:$3::$4/64" dev t0 nodad 2>/dev/null || true
    ip -n "$1" link set t0 up
}

mkdir -p "$captures" "$seeds"
ip -n "$a" link set a0 up
capture neighbours neighbours
capture echoes echoes
capture refusals refusals
printf '%0600d' 0 >"$work/index.html"
ip netns exec "$b" python3 -m http.server --bind :: --directory "$work" 8000 >/dev/null 2>&1 &
pids+=($!)
ip netns exec "$b" iperf3 -s >/dev/null 2>&1 &
pids+=($!)
listening 8000
listening 5201
# veth leaves checksums partial, as a device would complete them. First so, then complete.
capture tcp-partial tcp
capture udp-partial udp
capture tunnels-partial tunnels
for link in "$a a0" "$b b0"; do
    ip netns exec "${link% *}" ethtool -K "${link#* }" tx off gso off gro off >/dev/null
done
capture tcp tcp
capture udp udp

# --- The seeds. ------------------------------------------------------------------------------------

rm -f "$seeds"/*
python3 - "$seeds" "$captures"/*.pcap <<'PYTHON'
"""Writes one frame of each kind to a file of its own."""
import pathlib, struct, sys


def kind(frame):
    """A name for what a parser would meet, as deep as it goes."""
    words, rest, proto = [], frame[14:], int.from_bytes(frame[12:14])
    while proto in (0x8100, 0x88A8):
        words.append("vlan")
        proto, rest = int.from_bytes(rest[2:4]), rest[4:]
    if proto == 0x0806:
        return words + ["arp", str(rest[7])]
    return words + packet(rest, proto)


def packet(rest, proto):
    if proto == 0x0800:
        ihl, word = (rest[0] & 15) * 4, int.from_bytes(rest[6:8])
        words = ["v4"] + (["options"] if ihl > 20 else [])
        later, part = word & 0x1FFF, word & 0x3FFF
        return words + transport(rest[ihl:], rest[9], later, part)
    if proto != 0x86DD:
        return [f"{proto:04x}"]
    words, next_header, rest, later, part = ["v6"], rest[6], rest[40:], 0, 0
    while next_header in (0, 43, 44, 60):
        words.append({0: "hop", 43: "routing", 44: "fragment", 60: "destination"}[next_header])
        length = 8 if next_header == 44 else rest[1] * 8 + 8
        if next_header == 44:
            word = int.from_bytes(rest[2:4])
            later, part = word & 0xFFF8, word & 0xFFF9
        next_header, rest = rest[0], rest[length:]
    return words + transport(rest, next_header, later, part)


def transport(rest, proto, later, part):
    if later:
        return ["later", str(proto)]
    words = ["first"] if part else []
    if proto in (1, 58):
        size = "" if len(rest) > 8 else "empty"
        words += ["icmp" if proto == 1 else "icmpv6", f"{rest[0]}-{rest[1]}", size]
        return [word for word in words if word]
    if proto == 6:
        return words + ["tcp", f"flags{rest[13]:02x}", "data" if len(rest) > rest[12] // 16 * 4 else "bare"]
    if proto == 17:
        port = int.from_bytes(rest[2:4])
        if port in (4789, 6081):
            skip = 8 if port == 4789 else 8 + (rest[8] & 63) * 4
            return words + ["vxlan" if port == 4789 else "geneve"] + kind(rest[8 + skip:])
        return words + ["udp", "long" if len(rest) > 300 else "short"]
    if proto in (4, 41):
        return words + ["in"] + packet(rest, 0x0800 if proto == 4 else 0x86DD)
    if proto == 47:
        inner = int.from_bytes(rest[2:4])
        return words + ["gre"] + (kind(rest[4:]) if inner == 0x6558 else packet(rest[4:], inner))
    return words + [str(proto)]


def frames(path):
    data = path.read_bytes()
    assert data[:4] == b"\xd4\xc3\xb2\xa1", f"{path} is not a little-endian microsecond pcap"
    at = 24
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


folder, total = pathlib.Path(sys.argv[1]), 0
for path in map(pathlib.Path, sys.argv[2:]):
    # A partial checksum is a kind of its own.
    suffix = "-partial" if path.stem.endswith("-partial") else ""
    for frame in frames(path):
        seed = folder / ("-".join(kind(frame)) + suffix)
        if not seed.exists():
            seed.write_bytes(frame)
            total += len(frame)

def v4_around(payload, proto):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, proto, 0,
                         bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + header[12:] + payload


# The tunnels that not every kernel has, made around captured packets.
for inner in ("v4-tcp-flags18-data-partial", "v6-udp-short-partial"):
    frame = (folder / inner).read_bytes()
    ethernet, proto, whole = frame[:14], frame[12:14], frame[14:]
    geneve = b"\x01\x00\x65\x58\x00\x00\x07\x00\x01\x02\x03\x00" + frame
    geneve = struct.pack("!HHHH", 49152, 6081, 8 + len(geneve), 0) + geneve
    for name, made in {
        "vlan": frame[:12] + b"\x81\x00\x00\x05" + frame[12:],
        "gre": ethernet[:12] + b"\x08\x00" + v4_around(b"\x00\x00" + proto + whole, 47),
        "gre-key-ethernet": ethernet[:12] + b"\x08\x00"
        + v4_around(b"\x20\x00\x65\x58\x00\x00\x00\x07" + frame, 47),
        "in-v4": ethernet[:12] + b"\x08\x00" + v4_around(whole, 41 if inner[1] == "6" else 4),
        "geneve": ethernet[:12] + b"\x08\x00" + v4_around(geneve, 17),
    }.items():
        (folder / f"made-{name}-{inner}").write_bytes(made)
        total += len(made)

def onwards(frame, host):
    """The same packet for another host of its destination's network."""
    at = 33 if frame[12:14] == b"\x08\x00" else 53
    made = bytearray(frame[:at] + bytes([host]) + frame[at + 1 :])
    if at == 33:
        made[24:26] = bytes(2)
        total = sum(struct.unpack("!10H", made[14:34]))
        total = (total & 0xFFFF) + (total >> 16)
        made[24:26] = struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)
    return bytes(made)


# Packets that the fuzzed router forwards by a group, and by its two sub-interfaces.
for inner in ("v4-tcp-flags18-data-partial", "v6-udp-short-partial"):
    for host in (10, 11, 12):
        made = onwards((folder / inner).read_bytes(), host)
        (folder / f"made-to-{host}-{inner}").write_bytes(made)
        total += len(made)

assert total < 200_000, f"{total} bytes of seeds are too many"
print(f"{len(list(folder.iterdir()))} seeds, {total} bytes")
PYTHON
