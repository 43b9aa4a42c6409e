//! `manylane show sockets`.

use nix::unistd::{Uid, User};

use crate::terminal::table::{bytes, count, lay_out, plural};
use manylane_api::{SocketStatus, SocketsStatus};
use manylane_client::protocol;

pub(crate) fn sockets(status: &SocketsStatus) -> String {
    let wants = status.sockets.iter().map(|socket| {
        vec![
            socket.socket.to_string(),
            owner(socket),
            bound(socket),
            socket.points.join(", "),
            socket.filter_len.to_string(),
            socket.snap.to_string(),
            group(socket),
        ]
    });
    let given = status.sockets.iter().map(|socket| {
        vec![
            socket.socket.to_string(),
            bytes(socket.ring_bytes),
            format!("{:.1} s", socket.time_ns as f64 / 1e9),
            count(socket.packets),
            bytes(socket.bytes),
            count(socket.lost),
            count(socket.clamped),
            count(socket.stale),
            count(socket.contended),
        ]
    });
    let tables = match status.sockets.is_empty() {
        true => "No packet sockets.\n".into(),
        false => {
            let titles = [">Socket", "Owner", "Bound to", "Points", ">Filter", ">Snap", "Group"];
            let wants = lay_out(&titles, wants);
            let titles = [
                ">Socket",
                ">Ring",
                ">Time",
                ">Packets",
                ">Bytes",
                ">Lost",
                ">Cut",
                ">Stale",
                ">Contended",
            ];
            format!("{wants}\n{}", lay_out(&titles, given))
        }
    };
    format!("{tables}\n{}", bounds(status))
}

/// What all sockets take, and may take.
fn bounds(status: &SocketsStatus) -> String {
    let SocketsStatus {
        sockets,
        max,
        per_user_max,
        memory_bytes,
        memory_max,
        per_user_memory_max,
        instructions,
        filter_max,
        per_user_filter_max,
        time_max,
        closed_for_time,
        send,
    } = status;
    format!(
        "{} of {} ({} for a user), rings of {} of {} ({} for a user),\n\
         filters of {} instructions of {} ({} for a user), at most {time_max} % of a worker's time; {} closed for more.\n\
         Captures {} send.\n",
        plural(sockets.len(), "socket"),
        count(u64::from(*max)),
        count(u64::from(*per_user_max)),
        bytes(*memory_bytes),
        bytes(*memory_max),
        bytes(*per_user_memory_max),
        count(*instructions),
        count(u64::from(*filter_max)),
        count(u64::from(*per_user_filter_max)),
        count(*closed_for_time),
        if *send { "may" } else { "may not" },
    )
}

fn owner(socket: &SocketStatus) -> String {
    let Some(pid) = socket.pid else { return "the daemon".into() };
    let name = socket.uid.map(|uid| {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        user.map_or_else(|| format!("user {uid}"), |user| user.name)
    });
    format!("{}, process {pid}", name.unwrap_or_default())
}

fn bound(socket: &SocketStatus) -> String {
    let protocol = match socket.protocol {
        protocol::NONE => return "nothing".into(),
        protocol::ALL => String::new(),
        protocol::IEEE_802_2 => ", 802.2".into(),
        protocol::IPV4 => ", IPv4".into(),
        protocol::ARP => ", ARP".into(),
        protocol::IPV6 => ", IPv6".into(),
        other => format!(", {other:#06x}"),
    };
    format!("{}{protocol}", socket.port.as_deref().unwrap_or("all ports"))
}

fn group(socket: &SocketStatus) -> String {
    match (socket.group, &socket.fanout) {
        (Some(group), Some(fanout)) => format!("{group}, {fanout}"),
        _ => String::new(),
    }
}
