//! The log of translations: when conntrack's connections that are translated begin and end, for collectors (RFC 8158).
//!
//! The log covers all translated connections of the router, the lane's and the kernel's: an operator may have to tell the
//! subscriber of an address at some time, and then needs the short ones, too. A thread of its own hears conntrack, by a
//! socket of its own: the lane's hears ends only, and a storm of beginnings must not cost the lane any of them.
//!
//! If announcements are lost, since this thread was too slow, the log lacks events; [`NatStatus`] counts how often.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use manylane_export::ipfix::{Ends, NatChange, NatEvent, Record, RecordSender};
use manylane_io::eventfd::EventFd;
use manylane_io::joined::Joined;
use manylane_io::netlink::NetlinkError;
use manylane_io::netlink::conntrack::{
    Connection, Conntrack, ConntrackEvents, Event, Seen, Status, Tuple,
};
use manylane_io::poll::poll;

/// How the log does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatStatus {
    /// Translations that began or ended.
    pub events: u64,
    /// Times that announcements of conntrack were lost, each time some.
    pub gaps: u64,
    /// Why conntrack cannot be heard.
    pub trouble: Option<String>,
}

/// What others see of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct NatWatch(Arc<Mutex<NatStatus>>);

impl NatWatch {
    /// How the log does.
    pub fn status(&self) -> NatStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut NatStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The thread's handle; the thread ends with it.
pub(crate) struct NatLog {
    watch: NatWatch,
    _thread: Joined,
}

impl NatLog {
    /// Starts the thread, in the network namespace of the calling one.
    pub fn start(sender: RecordSender) -> io::Result<NatLog> {
        let doorbell = Arc::new(EventFd::open()?);
        let watch = NatWatch::default();
        let log = Log { sender, doorbell: doorbell.clone(), watch: watch.clone() };
        Ok(NatLog { watch, _thread: Joined::start("nat_log", doorbell, move || log.run())? })
    }

    /// What others see of it.
    pub fn watch(&self) -> NatWatch {
        self.watch.clone()
    }
}

/// What the thread has.
struct Log {
    sender: RecordSender,
    /// Rung once, for the end.
    doorbell: Arc<EventFd>,
    watch: NatWatch,
}

impl Log {
    fn run(self) {
        loop {
            match open().and_then(|events| self.hear(events)) {
                Ok(()) => return,
                Err(error) => self.watch.change(|status| status.trouble = Some(error.to_string())),
            }
            // Again later, or the end.
            let _ = poll(&[self.doorbell.as_fd()], Some(RETRY));
            if self.doorbell.drain() {
                return;
            }
        }
    }

    /// Hears conntrack until the end.
    fn hear(&self, mut events: ConntrackEvents) -> Result<(), NetlinkError> {
        self.watch.change(|status| status.trouble = None);
        let mut records = Vec::new();
        let mut ends = false;
        loop {
            let seen = events.read(|event| records.extend(record(&event, now_ms())))?;
            let count = records.len() as u64;
            self.sender.send(&records);
            records.clear();
            self.watch.change(|status| {
                status.events += count;
                status.gaps += u64::from(seen == Seen::Lost);
            });
            if seen == Seen::More {
                continue;
            }
            if ends {
                return Ok(());
            }
            // The one failure is ENOMEM: then it reads instead of sleeping.
            let _ = poll(&[self.doorbell.as_fd(), events.as_fd()], None);
            // What was announced before the end is read once more.
            ends = self.doorbell.drain();
        }
    }
}

fn open() -> Result<ConntrackEvents, NetlinkError> {
    // Such a socket has the kernel load what answers it, where that is a module.
    Conntrack::open()?;
    ConntrackEvents::open_lives(RECEIVE_BUFFER)
}

/// The record of an event, if it is about a translated connection.
fn record(event: &Event, time_ms: u64) -> Option<Record> {
    let (connection, change) = match event {
        Event::Began(connection) => (connection, NatChange::Created),
        Event::Destroyed(connection) => (connection, NatChange::Deleted),
        Event::Marked(_) => return None,
    };
    let Connection { original, reply, status, .. } = connection;
    // Of connections through the router and of its own.
    status.intersects(TRANSLATED).then(|| {
        let received = ends(original);
        let sent = Ends::new(
            (reply.destination, reply.destination_port),
            (reply.source, reply.source_port),
        );
        let protocol = original.protocol;
        NatEvent { time_ms, change, received, sent, protocol }.into()
    })
}

fn ends(tuple: &Tuple) -> Ends {
    Ends::new((tuple.source, tuple.source_port), (tuple.destination, tuple.destination_port))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

const TRANSLATED: Status = Status(Status::SOURCE_NAT.0 | Status::DESTINATION_NAT.0);
/// Some 8,000 events that are not read yet; the kernel counts 2 KiB for each.
const RECEIVE_BUFFER: usize = 16 << 20;
/// How long to wait before conntrack is tried again.
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::fixtures;

    fn connection(status: Status) -> Connection {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let original = Tuple {
            source: address(1),
            destination: address(2),
            source_port: 1000,
            destination_port: 53,
            protocol: 17,
        };
        let reply = Tuple {
            source: address(2),
            destination: address(9),
            source_port: 53,
            destination_port: 6000,
            protocol: 17,
        };
        fixtures::connection([original, reply], 1, status)
    }

    #[test]
    fn a_translation_has_a_record_at_its_beginning_and_its_end() {
        let translated = connection(Status::SOURCE_NAT);
        for (event, change) in [
            (Event::Began(translated), NatChange::Created),
            (Event::Destroyed(translated), NatChange::Deleted),
        ] {
            let Some(Record::Nat(event)) = record(&event, 7) else { panic!("a record") };
            assert_eq!((event.time_ms, event.change, event.protocol), (7, change, 17));
            let ends = [
                event.received.source,
                event.received.destination,
                event.sent.source,
                event.sent.destination,
            ];
            assert_eq!(
                ends.map(|end| end.to_string()),
                ["192.0.2.1:1000", "192.0.2.2:53", "192.0.2.9:6000", "192.0.2.2:53"]
            );
        }
        assert_eq!(record(&Event::Began(connection(Status::CONFIRMED)), 7), None);
        assert_eq!(record(&Event::Marked(translated), 7), None);
    }
}
