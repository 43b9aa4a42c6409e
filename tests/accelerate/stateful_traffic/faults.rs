//! Whatever becomes of the accelerator, connections continue.

use std::io::Read;
use std::net::{Shutdown, UdpSocket};
use std::sync::{Condvar, Mutex};
use std::thread;

use manylane_io::netlink::conntrack::Tcp;
use manylane_lab::scenario::has;
use manylane_lab::{SERVER_V4, SERVER_V6, until};
use nix::sys::signal::Signal;

use super::bed::{Bed, Plan, TIERS, is_liberal};
use super::stream::Stream;
use super::talk::{Datagrams, Pair};
use super::transfers::settled;

/// A number that grows, and that a thread can wait for.
#[derive(Default)]
pub(super) struct Progress(Mutex<u64>, Condvar);

impl Progress {
    pub fn set(&self, number: u64) {
        *self.0.lock().expect("no thread panics with the lock") = number;
        self.1.notify_all();
    }

    pub fn wait_for(&self, number: u64) {
        let guard = self.0.lock().expect("no thread panics with the lock");
        let waited = self.1.wait_while(guard, |at| *at < number);
        drop(waited.expect("no thread panics with the lock"));
    }
}

#[test]
fn a_transfer_outlives_the_accelerator() {
    for tier in TIERS {
        let Some(mut bed) = Bed::usual(tier) else { return };
        for address in [SERVER_V4, SERVER_V6] {
            let pair = settled(&bed, address);
            let progress = Progress::default();
            let gaps = thread::scope(|scope| {
                let transfer =
                    scope.spawn(|| pair.exchange_and(BLOCKS, &|number| progress.set(number)));
                progress.wait_for(BLOCKS / 3);
                bed.accelerated.signal(Signal::SIGKILL);
                bed.accelerated.wait();
                transfer.join().expect("all arrives")
            });
            println!("{tier}, {address}: nothing arrived for {gaps:?} at most, forth and back");
            let began = pair.began();
            pair.close();
            bed.ends_in(began, Tcp::TIME_WAIT);
            assert_eq!(bed.invalid(), 0);
            bed.accelerate_again();
        }
        bed.finish();
    }
}

#[test]
fn a_transfer_outlives_stops_of_the_accelerator() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        let [client, server] = bed.hosts();
        let stream = Stream::start(Datagrams::open(client, server, SERVER_V6));
        let pair = settled(&bed, SERVER_V4);
        // The kernel has datagrams until they have been answered for some seconds.
        bed.wait_for_lane("datagrams", || stream.goes_on(200, "by the lane"));
        for _ in 0..2 {
            bed.accelerated.signal(Signal::SIGSTOP);
            let before = bed.kernel();
            until("the kernel forwards", || {
                pair.exchange(4);
                match bed.kernel() {
                    now if now > before + 500 => Ok(()),
                    now => Err(now),
                }
            });
            let id = bed.connection(stream.began()).map(|one| one.id);
            let mark = stream.mark();
            stream.goes_on(100, "by the kernel");
            bed.accelerated.signal(Signal::SIGCONT);
            bed.wait_for_lane("after SIGCONT", || {
                pair.exchange(16);
                stream.goes_on(50, "after SIGCONT");
            });
            bed.lane_has("after SIGCONT", || {
                pair.exchange(64);
            });
            stream.all_arrive(mark..stream.returns("all"), "across the stop's end");
            assert_eq!(bed.connection(stream.began()).map(|one| one.id), id);
        }
        let began = pair.began();
        pair.close();
        bed.ends_in(began, Tcp::TIME_WAIT);
        drop(stream);
        bed.finish();
    }
}

/// The kernel alone has seen the end: the lane must not forward as if both ends were open.
#[test]
fn a_connection_that_half_closes_meanwhile_is_the_kernels() {
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        for address in [SERVER_V4, SERVER_V6] {
            let [pair, other] = [settled(&bed, address), settled(&bed, address)];
            bed.accelerated.signal(Signal::SIGSTOP);
            let before = bed.kernel();
            until("the kernel forwards", || {
                pair.exchange(4);
                match bed.kernel() {
                    now if now > before + 500 => Ok(()),
                    now => Err(now),
                }
            });
            pair.near.shutdown(Shutdown::Write).expect("it is open");
            bed.ends_in(pair.began(), Tcp::CLOSE_WAIT);
            bed.accelerated.signal(Signal::SIGCONT);
            bed.wait_for_lane("the other connection", || {
                other.exchange(16);
            });
            until("the kernel has what half closed", || {
                let before = bed.passed();
                pair.answer(16);
                match bed.passed().since(before) {
                    passed if passed.by_kernel > 10 * passed.by_lane => Ok(()),
                    passed => Err(passed),
                }
            });
            bed.ends_in(pair.began(), Tcp::CLOSE_WAIT);
            let began = pair.began();
            let Pair { mut near, far } = pair;
            drop(far);
            assert_eq!(near.read(&mut [0]).expect("an end"), 0);
            bed.ends_in(began, Tcp::TIME_WAIT);
            other.close();
        }
        bed.finish();
    }
}

#[test]
fn what_finds_no_place_in_the_table_is_the_kernels() {
    for tier in TIERS {
        let plan = Plan { arguments: &["--flows", "16"], ..Plan::default() };
        let Some(bed) = Bed::make(tier, plan) else { return };
        let [client, server] = bed.hosts();
        let addresses = [SERVER_V4, SERVER_V6].into_iter().cycle();
        let pairs: Vec<_> =
            addresses.take(64).map(|address| Pair::open(client, server, address)).collect();
        let admitted = || bed.connections().iter().filter(|one| is_liberal(one)).count();
        until("the table is full", || {
            let before = (admitted(), bed.passed());
            pairs.iter().for_each(|pair| {
                pair.exchange(8);
            });
            let (now, passed) = (admitted(), bed.passed());
            let is_shared =
                passed.by_lane > before.1.by_lane && passed.by_kernel > before.1.by_kernel;
            match (now, is_shared) {
                (now, true) if now > 0 && now == before.0 => Ok(()),
                now => Err(format!("{now:?} {before:?} {passed:?}")),
            }
        });
        let admitted = admitted();
        println!("{tier}: {admitted} of {} connections are in the lane", pairs.len());
        assert!(admitted <= 16, "{admitted}");
        assert!(bed.accelerated.passed("no_flow") > 0);
        // Places of connections that end are others'.
        pairs.into_iter().for_each(Pair::close);
        for address in [SERVER_V4, SERVER_V6] {
            settled(&bed, address).close();
        }
        bed.finish();
    }
}

/// More ends than the socket for conntrack's notifications holds: the lane compares its entries with a
/// list.
#[test]
fn lost_notifications_leave_no_entry_behind() {
    if !has("conntrack") {
        return;
    }
    for tier in TIERS {
        let Some(bed) = Bed::usual(tier) else { return };
        let [client, server] = bed.hosts();
        let datagrams = Datagrams::open(client, server, SERVER_V4);
        bed.wait_for_lane("UDP", || {
            datagrams.exchange(4);
        });
        let (lost, generation) = (bed.lane().resyncs, bed.lane().generation);
        bed.accelerated.signal(Signal::SIGSTOP);
        // By the kernel, once the lease has lapsed: many connections, which end at once.
        let sender = client.run(|| UdpSocket::bind("10.1.0.1:0")).expect("a port is free");
        until("they are in conntrack", || {
            for port in 1..=MANY {
                // What the server refuses is an error at the next send.
                let _ = sender.send_to(b"one", (SERVER_V4, port));
            }
            match bed.connections().len() {
                all if all > usize::from(MANY) * 9 / 10 => Ok(()),
                all => Err(all),
            }
        });
        bed.topology.tool("r1", "conntrack -F");
        bed.accelerated.signal(Signal::SIGCONT);
        // The next datagram is of a connection that the kernel takes for a new one.
        let entered = bed.accelerated.passed("no_flow");
        datagrams.exchange(1);
        bed.wait_for_lane("after the list", || {
            datagrams.exchange(8);
        });
        assert!(bed.lane().resyncs > lost, "no notification was lost");
        assert!(bed.lane().generation > generation, "entries count that are older than the lapse");
        // A connection is a candidate at its 16th packet without an entry.
        let without = bed.accelerated.passed("no_flow") - entered;
        assert!(without >= 16, "old entries were used: {without} packets had none");
        bed.finish();
    }
}

/// Of each way.
const BLOCKS: u64 = 3000;
/// Far more than the socket holds.
const MANY: u16 = 30_000;
