//! What the other protocols of `manylane-sync` cost.

use manylane_sync::primitive::counted::Books;
use manylane_sync::rcu::{Domain, Index, Reader, Ticket};
use manylane_sync::ring::{Consumer, Producer, ring};
use manylane_sync::stack::IndexStack;
use manylane_sync::words::{Words, WordsMut};

use crate::figure::{Output, print};
use crate::refcounts::operations;

pub fn run(workers: &[usize], quick: bool, output: &Output) {
    for &workers in workers {
        guard(workers, output);
        quiescent(workers, output);
        grace_period(workers, output);
        stack(workers, quick, output);
    }
    for batch in [1, 64] {
        spsc(batch, output);
    }
}

const ROUNDS: u64 = 64;

/// Counts `ROUNDS` rounds of turns after as many to warm up.
fn turns<W>(workers: &mut [W], mut step: impl FnMut(&mut W)) -> Books {
    let books = Books::new();
    books.turns(workers, ROUNDS, &mut step);
    books.clear();
    books.turns(workers, ROUNDS, &mut step);
    books
}

/// An object read under a guard, without a count: an index is loaded, and a record by it.
fn guard(n: usize, output: &Output) {
    let mut table = WordsMut::<u64>::zeroed(32);
    table.publish(0, 16);
    let domain = Domain::new(n);
    let mut workers: Vec<(Reader, Words<u64>)> =
        readers(&domain, n).map(|reader| (reader, table.reader())).collect();
    let books = turns(&mut workers, |(reader, table)| {
        let index = Index::<u64>::new(reader.guard(), table.load(0) as u32);
        assert_eq!(table.load_array::<2>(index.raw() as usize), [0, 0]);
        reader.quiescent();
    });
    let operations = ROUNDS * n as u64;
    print(output, "guard", n, "transfers", books.total().transactions(), operations);
}

/// Without a writer that wants a grace period.
fn quiescent(n: usize, output: &Output) {
    let domain = Domain::new(n);
    let books = turns(&mut readers(&domain, n).collect::<Vec<_>>(), Reader::quiescent);
    let operations = ROUNDS * n as u64;
    print(output, "quiescent", n, "transfers", books.total().transactions(), operations);
}

/// The last worker is a writer that begins a grace period each turn, and looks whether the one before is
/// over. For each `quiescent` of the others.
fn grace_period(n: usize, output: &Output) {
    enum Worker {
        Reader(Reader),
        Writer(Domain, Option<Ticket>),
    }
    let domain = Domain::new(n);
    let mut workers: Vec<Worker> = readers(&domain, n - 1).map(Worker::Reader).collect();
    workers.push(Worker::Writer(domain, None));
    let books = turns(&mut workers, |worker| match worker {
        Worker::Reader(reader) => reader.quiescent(),
        Worker::Writer(domain, ticket) => {
            if let Some(ticket) = ticket {
                assert!(domain.is_over(*ticket), "each reader has had its turn");
            }
            *ticket = Some(domain.start());
        }
    });
    let operations = ROUNDS * (n as u64 - 1);
    print(output, "quiescent_gp", n, "transfers", books.total().transactions(), operations);
    print(output, "quiescent_gp", n, "busiest_line", books.busiest_line(), operations);
}

/// Each worker takes an index and gives it back, all at once: in lockstep.
fn stack(n: usize, quick: bool, output: &Output) {
    let stack = IndexStack::new(2 * n as u32);
    (0..2 * n as u32).for_each(|index| stack.push(index));
    let operations = operations(n, quick);
    let books = Books::new();
    books.lockstep(&mut vec![(); n], 4 * n as u64, operations, |()| {
        stack.push(stack.pop().expect("there are two for each"));
    });
    let total = books.total();
    print(output, "stack", n, "transfers", total.transactions(), operations);
    print(output, "stack", n, "failed", total.failed, operations);
    print(output, "stack", n, "busiest_line", books.busiest_line(), operations);
}

/// One worker pushes a batch of 8-byte items, the other takes it, in turns. For each item, of several rings: the heap
/// places their slots, so that a batch lies on one line more in some than in others.
fn spsc(batch: u64, output: &Output) {
    enum Side {
        Producer(Producer<u64>),
        Consumer(Consumer<u64>),
    }
    let mut rings: Vec<[Side; 2]> = Vec::new();
    for _ in 0..9 {
        let (producer, consumer) = ring(256);
        rings.push([Side::Producer(producer), Side::Consumer(consumer)]);
    }
    let counts = rings.iter_mut().map(|sides| {
        let books = turns(sides, |side| match side {
            Side::Producer(producer) => {
                (0..batch).for_each(|item| producer.push(item).expect("it was emptied"));
                producer.submit();
            }
            Side::Consumer(consumer) => {
                assert_eq!((0..batch).filter_map(|_| consumer.pop()).count() as u64, batch);
                consumer.release();
            }
        });
        let items = (ROUNDS * batch) as f64;
        (books.total().transactions() as f64 / items, books.busiest_line() as f64 / items)
    });
    let (transfers, busiest): (Vec<f64>, Vec<f64>) = counts.unzip();
    output.figure(&format!("ring_b{batch}_transfers_2w"), "lines", &transfers);
    output.figure(&format!("ring_b{batch}_busiest_line_2w"), "lines", &busiest);
}

fn readers(domain: &Domain, n: usize) -> impl Iterator<Item = Reader> {
    (0..n).map(|_| domain.register().expect("the domain has a place for each"))
}
