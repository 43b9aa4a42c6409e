//! One connection: a process, and the capture that it has opened.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use manylane_client::message::{Answer, Counts, Kind, Port, REQUEST_MAX, Refusal, Request, Wanted};
use manylane_frame::vocabulary::Point;
use manylane_io::bpf::rings::{Counted, Shape};
use manylane_net::filter::{Instruction, Program};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use super::Open;
use crate::accelerator::published::Published;
use crate::programs::{self, Targets};

/// What a connection needs of the server.
pub(super) struct Context {
    pub targets: Targets,
    pub published: Arc<Published>,
}

/// A process that is connected.
pub(super) struct Connection {
    fd: OwnedFd,
    user: u32,
    capture: Option<Open>,
}

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    HangUp,
}

/// Bytes of a buffer for a request: one more than a request may have.
pub(super) const BUFFER: usize = REQUEST_MAX + 1;

impl Connection {
    pub fn new(fd: OwnedFd, user: u32) -> Connection {
        Connection { fd, user, capture: None }
    }

    /// The process's user, if it has a capture.
    pub fn capturing_user(&self) -> Option<u32> {
        self.capture.as_ref().map(|_| self.user)
    }

    /// Answers a request, if one has arrived.
    pub fn serve(&mut self, context: &Context, users: &[u32], buffer: &mut [u8]) -> Next {
        let len = match recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Next::HangUp,
            Ok((len, _)) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Next::Stay,
            Err(_) => return Next::HangUp,
        };
        let answer = if len > REQUEST_MAX {
            Err(bad(format!("a request of more than {REQUEST_MAX} bytes; send a shorter filter")))
        } else {
            self.execute(context, users, &buffer[..len])
        };
        self.say(&answer.unwrap_or_else(Answer::Refused))
    }

    /// Lets the capture see packets of programs that have come.
    pub fn extend(&mut self) -> Next {
        match self.capture.as_mut().map_or(Ok(()), Open::extend) {
            Ok(()) => Next::Stay,
            Err(error) => {
                self.say(&Answer::Refused(system(&error)));
                Next::HangUp
            }
        }
    }

    fn execute(
        &mut self,
        context: &Context,
        users: &[u32],
        request: &[u8],
    ) -> Result<Answer, Refusal> {
        let request = serde_json::from_slice(request)
            .map_err(|error| bad(format!("it is no request of this version: {error}")))?;
        match (request, &self.capture) {
            (Request::Ports, _) => Ok(Answer::Ports { ports: ports(&context.published) }),
            (Request::Capture(_), Some(_)) => {
                Err(bad("a connection is one capture, and this one is open; connect again".into()))
            }
            (Request::Capture(wanted), None) => self.open(context, users, wanted),
            (Request::Statistics { .. }, Some(capture)) => {
                let Counted { matched, lost } = capture.counted();
                let packets = matched.saturating_sub(lost);
                Ok(Answer::Statistics(Counts { packets, lost, ..Counts::default() }))
            }
            _ => Err(Refusal {
                kind: Kind::Accelerates,
                error: "this is `manylane accelerate`, which has captures and no packet sockets: use `manylane capture`"
                    .into(),
            }),
        }
    }

    fn open(
        &mut self,
        context: &Context,
        users: &[u32],
        wanted: Wanted,
    ) -> Result<Answer, Refusal> {
        let others = users.iter().filter(|&&user| user == self.user).count();
        if others >= USER_MAX && self.user != 0 {
            return Err(Refusal {
                kind: Kind::TooMany,
                error: format!("this user has {others} captures open; close one"),
            });
        }
        let wanted = wanted_of(context, wanted)?;
        let opened = Open::begin(&context.targets, &context.published, wanted);
        let Some(capture) = opened.map_err(|error| system(&error))? else {
            return Err(Refusal {
                kind: Kind::TooMany,
                error: "as many captures are open as may be; close one".into(),
            });
        };
        let programs = capture.programs();
        let Shape { cpus, ring, table } = programs.rings().shape();
        let answer = Answer::Captures {
            cpus: cpus as u64,
            ring_bytes: ring as u64,
            table_bytes: table as u64,
            untranslated: programs.untranslated().map(str::to_owned),
            workers: capture.of_workers().is_some(),
        };
        self.capture = Some(capture);
        Ok(answer)
    }

    /// Sends an answer; with a new capture's, its descriptors. Hangs up on a process that does not read.
    fn say(&self, answer: &Answer) -> Next {
        let text = serde_json::to_vec(answer).expect("all of an answer is JSON");
        let mut descriptors = Vec::new();
        if let (Answer::Captures { .. }, Some(capture)) = (answer, &self.capture) {
            descriptors.extend(capture.descriptors());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Next::HangUp; // Two find room.
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.fd, &[IoSlice::new(&text)], &mut control, flags) {
            Ok(_) => Next::Stay,
            Err(_) => Next::HangUp,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn ports(published: &Published) -> Vec<Port> {
    let view = published.view();
    view.ports.iter().map(|port| Port { port: port.number, name: port.name.clone() }).collect()
}

fn wanted_of(context: &Context, wanted: Wanted) -> Result<programs::Wanted, Refusal> {
    let mut points = 0;
    for name in &wanted.points {
        let known = Point::ALL.iter().find(|point| point.name() == name);
        let names: Vec<_> = Point::ALL.iter().map(|point| point.name()).collect();
        let known = known.ok_or_else(|| {
            bad(format!("no point has the name `{name}`; known are {}", names.join(", ")))
        })?;
        points |= 1 << *known as u8;
    }
    let port = wanted.port.map(|name| {
        let known = ports(&context.published).into_iter().find(|port| port.name == name);
        known.map(|port| port.port).ok_or_else(|| Refusal {
            kind: Kind::NoSuchPort,
            error: format!("port `{name}` does not exist; `manylane show ports` lists them"),
        })
    });
    let filter = wanted.filter.map(|tuples| {
        Program::new(tuples.into_iter().map(Instruction::from).collect()).map_err(|error| Refusal {
            kind: Kind::Filter,
            error: format!("the filter is refused: {error}"),
        })
    });
    let snap = if wanted.snap == 0 { u32::MAX } else { wanted.snap };
    Ok(programs::Wanted { points, port: port.transpose()?, snap, filter: filter.transpose()? })
}

fn bad(error: String) -> Refusal {
    Refusal { kind: Kind::BadRequest, error }
}

pub(super) fn system(error: &io::Error) -> Refusal {
    let advice = match error.kind() {
        io::ErrorKind::OutOfMemory => "free memory",
        _ => "`manylane doctor` shows what this kernel supports",
    };
    let error = format!("the kernel refused the capture: {error}; {advice}");
    Refusal { kind: Kind::System, error }
}

/// Captures of a user other than root.
const USER_MAX: usize = 4;
/// Those of a capture: its table, and the ring of workers.
const DESCRIPTORS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_kernel_says_what_to_do() {
        for (number, advice) in [(libc::ENOMEM, "free memory"), (libc::ENODEV, "`manylane doctor`")]
        {
            let refusal = system(&io::Error::from_raw_os_error(number));
            assert!(refusal.error.contains(advice), "{}", refusal.error);
        }
    }
}
