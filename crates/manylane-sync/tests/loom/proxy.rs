//! `rcu::Proxy`: a domain waits for readers that can only be waited for by a call that blocks.
//!
//! The kernel is a second domain, as in `slots`: a program is a reader that is online during a section, and the call
//! that blocks is a grace period. The model looks at it once; if it is not over, the call "failed".

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use manylane_sync::rcu::{Domain, Limbo, Proxy, ProxyToken, Ticket};

use super::slots::{Table, run_program};
use super::{Seen, explore};

/// What the models do with a domain whose only reader is a proxy: the crate's, or a twin of them.
trait Grace: Clone + Send + 'static {
    type Ticket: Copy;

    fn start(&self) -> Self::Ticket;
    fn is_over(&self, ticket: Self::Ticket) -> bool;
}

trait Stand: Send + 'static {
    type Token;

    fn begin(&self) -> Self::Token;
    fn end(&mut self, token: Self::Token);
}

/// What a program found before a grace period began is not freed until a call has returned that was made
/// after it began, or while the program could not find it any more.
#[test]
fn rcu_g_a_call_waits_for_what_was_unpublished_before_it() {
    static AGAIN: Seen = Seen::new("the slot was used again while a program ran");
    static REFUSED: Seen = Seen::new("the grace period was not over");
    explore("rcu_g, a program x 2", Some(4), || {
        programs(source(), Take::BeforeTheCall, &AGAIN, &REFUSED);
    });
    AGAIN.assert();
    REFUSED.assert();
}

/// A worker beside the programs: what a limbo hands back has had the grace period of both.
#[test]
fn rcu_g_workers_and_programs_are_waited_for_alike() {
    static AGAIN: Seen = Seen::new("the slot was used again while both sides ran");
    static REFUSED: Seen = Seen::new("the limbo kept it");
    explore("rcu_g, a worker and a program", Some(2), || {
        let domain = Domain::new(2);
        let proxy = domain.proxy().expect("the first fits");
        let mut worker = domain.register().expect("there is room for two");
        let table = Arc::new(Table::new());
        let worker = {
            let table = table.clone();
            thread::spawn(move || {
                table.look_up();
                worker.quiescent();
            })
        };
        let threads = run_programs(&table, proxy, Take::BeforeTheCall, 1);
        let mut limbo = Limbo::new(domain, 1);
        table.write_and_publish(1, 2);
        limbo.retire(0).expect("there is room");
        match limbo.reclaim() {
            Some(slot) => {
                AGAIN.note();
                table.write_and_publish(slot, 3);
            }
            None => REFUSED.note(),
        }
        drop((worker, threads));
    });
    AGAIN.assert();
    REFUSED.assert();
}

#[test]
fn the_twin_of_the_proxy_passes() {
    explore("proxy twin", Some(3), || {
        programs(twin(SOURCE), Take::BeforeTheCall, &UNUSED, &UNUSED);
    });
}

static UNUSED: Seen = Seen::new("");

macro_rules! mutant {
    ($name:ident, $pair:expr, $take:expr) => {
        #[test]
        #[should_panic(expected = "Causality violation")]
        fn $name() {
            explore(stringify!($name), None, || programs($pair, $take, &UNUSED, &UNUSED));
        }
    };
}

mutant!(mutant_a_token_taken_after_the_call_frees_what_is_found, source(), Take::AfterTheCall);
mutant!(
    mutant_a_relaxed_begin_frees_what_is_still_found,
    twin(Orders { begin: Ordering::Relaxed, ..SOURCE }),
    Take::BeforeTheCall
);
mutant!(
    mutant_a_relaxed_end_lets_the_writer_be_first,
    twin(Orders { end: Ordering::Relaxed, ..SOURCE }),
    Take::BeforeTheCall
);

/// When the reclaim thread takes its token.
#[derive(Clone, Copy, PartialEq)]
enum Take {
    BeforeTheCall,
    AfterTheCall,
}

/// A program that runs twice, a reclaim thread, and control, which replaces a record and uses its slot for a
/// third.
fn programs<G: Grace>(
    (domain, proxy): (G, impl Stand),
    take: Take,
    again: &'static Seen,
    refused: &'static Seen,
) {
    let table = Arc::new(Table::new());
    let _threads = run_programs(&table, proxy, take, 2);
    table.write_and_publish(1, 2);
    let ticket = domain.start();
    if domain.is_over(ticket) {
        again.note();
        table.write_and_publish(0, 3);
    } else {
        refused.note();
    }
}

/// A program, and the reclaim thread, which makes the call once.
fn run_programs(
    table: &Arc<Table>,
    mut proxy: impl Stand,
    take: Take,
    times: u32,
) -> [thread::JoinHandle<()>; 2] {
    let kernel = Domain::new(1);
    let program = kernel.register().expect("the first fits");
    let program = run_program(program, table.clone(), times);
    let reclaim = thread::spawn(move || {
        let early = (take == Take::BeforeTheCall).then(|| proxy.begin());
        if kernel.is_over(kernel.start()) {
            let token = early.unwrap_or_else(|| proxy.begin());
            proxy.end(token);
        }
    });
    [program, reclaim]
}

fn source() -> (Domain, Proxy) {
    let domain = Domain::new(1);
    let proxy = domain.proxy().expect("the first fits");
    (domain, proxy)
}

impl Grace for Domain {
    type Ticket = Ticket;

    fn start(&self) -> Ticket {
        Domain::start(self)
    }

    fn is_over(&self, ticket: Ticket) -> bool {
        Domain::is_over(self, ticket)
    }
}

impl Stand for Proxy {
    type Token = ProxyToken;

    fn begin(&self) -> ProxyToken {
        Proxy::begin(self)
    }

    fn end(&mut self, token: ProxyToken) {
        Proxy::end(self, token);
    }
}

/// The orderings of a proxy, named for the functions they stand in. Those of its domain are `rcu_twin`'s.
#[derive(Clone, Copy)]
struct Orders {
    begin: Ordering,
    end: Ordering,
}

const SOURCE: Orders = Orders { begin: Ordering::Acquire, end: Ordering::Release };

struct Shared {
    orders: Orders,
    token: AtomicU64,
    seen: AtomicU64,
}

#[derive(Clone)]
struct TwinDomain(Arc<Shared>);
struct TwinProxy(Arc<Shared>);

fn twin(orders: Orders) -> (TwinDomain, TwinProxy) {
    let shared = Arc::new(Shared { orders, token: AtomicU64::new(1), seen: AtomicU64::new(1) });
    (TwinDomain(shared.clone()), TwinProxy(shared))
}

impl Grace for TwinDomain {
    type Ticket = u64;

    fn start(&self) -> u64 {
        let ticket = self.0.token.fetch_add(1, Ordering::Release) + 1;
        fence(Ordering::SeqCst);
        ticket
    }

    fn is_over(&self, ticket: u64) -> bool {
        self.0.seen.load(Ordering::Acquire) >= ticket
    }
}

impl Stand for TwinProxy {
    type Token = u64;

    fn begin(&self) -> u64 {
        self.0.token.load(self.0.orders.begin)
    }

    fn end(&mut self, token: u64) {
        self.0.seen.store(token, self.0.orders.end);
    }
}
