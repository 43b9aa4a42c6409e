//! Sizes and limits of the whole daemon. Every key has a default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use manylane_frame::{HOT_LIST_DEFAULT, HOT_LIST_LENGTHS};
use manylane_net::neighbour::{DuplicateDetection, Timing};
use serde_spanned::Spanned;

use super::Environment;
use super::error::Problem;
use super::section::Section;
use manylane_api::{Listen, is_loopback};

/// The forwarding threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Where each worker is pinned; one core for each worker that may run, at least one. A core occurs twice
    /// only if the file lists it twice.
    pub cores: Vec<u16>,
    /// How many run from the start: the first ones.
    pub started: usize,
    /// How long an idle worker spins before it sleeps, in microseconds.
    pub idle_spin_us: u32,
}

impl Workers {
    /// How many workers may run at a time: what has one part for each worker is laid out for this number.
    pub fn count(&self) -> usize {
        self.cores.len()
    }
}

/// The frame pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Bytes of a frame, headroom included: 2048 or 4096.
    pub size: u32,
    /// Frames in all. Without it the daemon adds up what its ports and workers can hold.
    pub count: Option<u32>,
    /// Frames a worker keeps to itself before it exchanges with the depot: one of
    /// [`HOT_LIST_LENGTHS`](manylane_frame::HOT_LIST_LENGTHS).
    pub hot_list_len: u32,
    /// How many more receive queues the default of `count` suffices for: a running region does not grow.
    /// Until they come, workers' lists may grow into it.
    pub spare_queues: u32,
}

/// Limits of ICMP errors, and whether redirects are sent (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Errors a second that one worker may send.
    pub errors_per_second: u32,
    /// Errors that one worker may send at once after a silence.
    pub errors_burst: u32,
    /// Whether senders are sent redirects, as often as errors (RFC 1812 §5.2.7.2, RFC 4861 §8.2).
    pub redirects: bool,
}

/// Limits of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Neighbours in all.
    pub entries_max: u32,
    /// Packets that wait for one unresolved neighbour, per worker.
    pub hold_per_entry: u32,
    /// Packets that wait for any neighbour, per worker.
    pub hold_per_worker: u32,
    /// What is done about our own addresses that another station may have.
    pub duplicate_detection: DuplicateDetection,
    /// The timers of its entries, which the file names as `net.ipv4.neigh` of sysctl does.
    pub timing: Timing,
}

pub(super) fn workers(
    file: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Workers, Problem> {
    let section = file.table("workers", "[workers]")?;
    let count = section.number::<u16>("count", 1..=WORKERS_MAX)?;
    let max = section.number::<u16>("max", 1..=WORKERS_MAX)?;
    if let (Some(count), Some(max)) = (&count, &max)
        && count.get_ref() > max.get_ref()
    {
        return Err(Problem::new(
            max.span(),
            "`max` in [workers] is less than `count`",
            format!("at most {}", max.get_ref()),
            "raise `max`, or leave it out: it is for workers that are added while the daemon runs",
        )
        .also(count.span(), format!("{} workers", count.get_ref())));
    }
    let idle_spin_us = section.number("idle_spin_us", 0..=1_000_000)?;
    let idle_spin_us = idle_spin_us.map_or(50, |us| us.into_inner());
    let available = &environment.cores;

    if let Some(cores) = section.numbers::<u16>("cores", 0..=u64::from(u16::MAX))? {
        let cores = listed_cores(cores, count.as_ref(), max.as_ref(), available)?;
        let started = count.map_or(cores.len(), |count| count.into_inner().into());
        return Ok(Workers { cores, started, idle_spin_us });
    }
    let (cores, started) = chosen_cores(count, max, available)?;
    Ok(Workers { cores, started, idle_spin_us })
}

/// The cores that the file lists: one for each worker that may run.
fn listed_cores(
    cores: Spanned<Vec<Spanned<u16>>>,
    count: Option<&Spanned<u16>>,
    max: Option<&Spanned<u16>>,
    available: &[u16],
) -> Result<Vec<u16>, Problem> {
    let here: Vec<_> = available.iter().map(u16::to_string).collect();
    if let Some(wrong) = cores.get_ref().iter().find(|core| !available.contains(core.get_ref())) {
        return Err(Problem::new(
            wrong.span(),
            "no such core for `cores` in [workers]",
            "this core is not there, or not allowed",
            format!("choose among the cores this process may use: {}", here.join(", ")),
        ));
    }
    if cores.get_ref().is_empty() || cores.get_ref().len() > WORKERS_MAX as usize {
        return Err(Problem::new(
            cores.span(),
            "`cores` in [workers] is out of bounds",
            format!("{} cores", cores.get_ref().len()),
            format!("list 1 to {WORKERS_MAX} cores, or leave `cores` out"),
        ));
    }
    let (key, number) = match max {
        Some(max) => ("max", Some(max)),
        None => ("count", count),
    };
    if let Some(number) =
        number.filter(|number| usize::from(*number.get_ref()) != cores.get_ref().len())
    {
        return Err(Problem::new(
            cores.span(),
            format!("`cores` and `{key}` in [workers] disagree"),
            format!("{} cores", cores.get_ref().len()),
            "list one core for each worker, or leave one of the two keys out",
        )
        .also(number.span(), format!("{} workers", number.get_ref())));
    }
    Ok(cores.into_inner().into_iter().map(|core| core.into_inner()).collect())
}

/// Cores for a file that lists none, and how many workers start.
fn chosen_cores(
    count: Option<Spanned<u16>>,
    max: Option<Spanned<u16>>,
    available: &[u16],
) -> Result<(Vec<u16>, usize), Problem> {
    for (key, number) in [("count", &count), ("max", &max)] {
        if let Some(number) = number
            && usize::from(*number.get_ref()) > available.len()
        {
            return Err(Problem::new(
                number.span(),
                format!("`{key}` in [workers] is more than the machine has cores"),
                format!("this process may use {}", available.len()),
                "set fewer, or list `cores`, where a core may occur twice",
            ));
        }
    }
    let max = max.map(|max| usize::from(max.into_inner()));
    let started = match count {
        // One core is left to the control thread and the kernel's threads.
        None => {
            let most = max.unwrap_or(WORKERS_MAX as usize);
            available.len().saturating_sub(1).clamp(1, most)
        }
        Some(count) => count.into_inner().into(),
    };
    // Those that come later have what those from the start leave: that core last.
    let (later, first) = available.split_at(available.len() - started);
    let later = later.iter().rev().take(max.map_or(0, |max| max - started));
    Ok((first.iter().chain(later).copied().collect(), started))
}

pub(super) fn frames(file: &Section<'_>) -> Result<Frames, Problem> {
    let section = file.table("frames", "[frames]")?;
    let size = section.number::<u32>("size", 0..=u64::from(u32::MAX))?;
    if let Some(size) = size.as_ref().filter(|size| ![2048, 4096].contains(size.get_ref())) {
        return Err(Problem::new(
            size.span(),
            "`size` in [frames] is neither 2048 nor 4096",
            "not a frame size of AF_XDP",
            "choose 2048, or 4096 for an MTU above 1774",
        ));
    }
    let count = section.number("count", 1024..=4_194_304)?;
    let (shortest, longest) = HOT_LIST_LENGTHS.into_inner();
    let hot_list_len = section.number("hot_list_len", shortest.into()..=longest.into())?;
    let spare_queues = section.number("spare_queues", 0..=64)?;
    Ok(Frames {
        size: size.map_or(2048, |size| size.into_inner()),
        count: count.map(|count| count.into_inner()),
        hot_list_len: hot_list_len.map_or(HOT_LIST_DEFAULT, |len| len.into_inner()),
        spare_queues: spare_queues.map_or(1, |queues| queues.into_inner()),
    })
}

pub(super) fn icmp(file: &Section<'_>) -> Result<Icmp, Problem> {
    let section = file.table("icmp", "[icmp]")?;
    let rate = section.number("errors_per_second", 0..=1_000_000)?;
    let burst = section.number("errors_burst", 1..=10_000)?;
    Ok(Icmp {
        errors_per_second: rate.map_or(1000, |rate| rate.into_inner()),
        errors_burst: burst.map_or(50, |burst| burst.into_inner()),
        redirects: section.boolean("redirects")?.unwrap_or(false),
    })
}

pub(super) fn neighbour(file: &Section<'_>) -> Result<Neighbour, Problem> {
    let section = file.table("neighbour", "[neighbour]")?;
    let entries_max = section.number("entries_max", 16..=ENTRIES_MAX)?;
    let per_entry = section.number::<u32>("hold_per_entry", 1..=65_536)?;
    let per_worker = section.number::<u32>("hold_per_worker", 1..=65_536)?;

    let modes = [
        ("optimistic", DuplicateDetection::Optimistic),
        ("strict", DuplicateDetection::Strict),
        ("off", DuplicateDetection::Off),
    ];
    let neighbour = Neighbour {
        duplicate_detection: section.choice("duplicate_detection", &modes)?.unwrap_or_default(),
        entries_max: entries_max.map_or(8192, |entries| entries.into_inner()),
        hold_per_entry: per_entry.as_ref().map_or(101, |hold| *hold.get_ref()),
        hold_per_worker: per_worker.as_ref().map_or(1024, |hold| *hold.get_ref()),
        timing: timing(&section)?,
    };
    // Where both are defaults, they agree.
    let culprit = per_entry.or(per_worker);
    match culprit.filter(|_| neighbour.hold_per_entry > neighbour.hold_per_worker) {
        Some(culprit) => Err(Problem::new(
            culprit.span(),
            "`hold_per_entry` in [neighbour] is more than `hold_per_worker`",
            format!("{} against {}", neighbour.hold_per_entry, neighbour.hold_per_worker),
            "one neighbour's packets count for the worker too: raise `hold_per_worker`",
        )),
        None => Ok(neighbour),
    }
}

/// The timers of neighbours' entries (RFC 4861 §10).
fn timing(section: &Section<'_>) -> Result<Timing, Problem> {
    let time = |key: &str, bounds, unit: Duration, default: Duration| {
        let number = section.number::<u32>(key, bounds)?;
        Ok::<_, Problem>(number.map_or(default, |number| unit * number.into_inner()))
    };
    let asked = |key: &str, default: u8| {
        Ok::<_, Problem>(section.number::<u8>(key, 1..=100)?.map_or(default, Spanned::into_inner))
    };
    let (ms, second) = (Duration::from_millis(1), Duration::from_secs(1));
    let usual = Timing::default();
    let retransmit = time("retrans_time_ms", 100..=60_000, ms, usual.retransmit)?;
    Ok(Timing {
        retransmit,
        multicast_max: asked("mcast_solicit", usual.multicast_max)?,
        unicast_max: asked("ucast_solicit", usual.unicast_max)?,
        delay_first_probe: time(
            "delay_first_probe_time",
            1..=300,
            second,
            usual.delay_first_probe,
        )?,
        reachable: time("base_reachable_time_ms", 1000..=3_600_000, ms, usual.reachable)?,
        failed_hold: retransmit,
        failed_lifetime: time("gc_stale_time", 1..=86_400, second, usual.failed_lifetime)?,
    })
}

pub(super) fn socket(
    file: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<PathBuf, Problem> {
    let section = file.table("api", "[api]")?;
    let Some(path) = section.text("socket")? else { return Ok(environment.socket.clone()) };
    // unix(7): a path has 108 bytes, the last a zero. The longer of two paths is `SOCKET.capture`.
    let complaint = match *path.get_ref() {
        text if !text.starts_with('/') => "not an absolute path",
        text if text.len() > 99 => "longer than 99 bytes",
        text if text.contains('\0') => "contains a zero",
        text => return Ok(text.into()),
    };
    Err(Problem::new(
        path.span(),
        "`socket` in [api] cannot be a socket's path",
        complaint,
        format!("write a short path from the root, as {}", environment.socket.display()),
    ))
}

/// Where the API listens by TCP. Whether the token can be read is seen when the daemon starts.
pub(super) fn listen(file: &Section<'_>) -> Result<Listen, Problem> {
    let section = file.table("api", "[api]")?;
    let address = section.text("listen")?;
    let token_file = section.text("token_file")?;
    let host_name = section.text("host_name")?;
    let of_address = |text: &Spanned<&str>| {
        let parsed = text.get_ref().parse::<SocketAddr>().map_err(|_| {
            Problem::new(
                text.span(),
                "`listen` in [api] has to be an address and a port",
                "not an IP address, a colon and a port",
                "write it as \"127.0.0.1:9176\" or \"[::1]:9176\"",
            )
        })?;
        match token_file {
            None if !is_loopback(parsed) => Err(Problem::new(
                text.span(),
                "`listen` in [api] lets others than this host ask, without a token",
                "not a loopback address",
                "write 127.0.0.1 or [::1], or add `token_file`, a file that only its owner can read",
            )),
            _ => Ok(parsed),
        }
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    match &host_name {
        Some(name) if !is_name(name.get_ref()) => {
            return Err(Problem::new(
                name.span(),
                "`host_name` in [api] has to be a host's name",
                "not letters, digits, dots and hyphens",
                "write the name alone, as router1.example.net",
            ));
        }
        _ => {}
    }
    Ok(Listen {
        address: address.as_ref().map(of_address).transpose()?,
        token_file: token_file.map(|path| path.into_inner().into()),
        host_name: host_name.map(|name| name.into_inner().to_owned()),
    })
}

/// Each neighbour has a next-hop id, and the FIB has 2^15 ids; ports, and slots that wait for their
/// grace period, need some, too.
const ENTRIES_MAX: u64 = 30_000;

/// A bound on rings between workers: each pair has one.
const WORKERS_MAX: u64 = 128;
