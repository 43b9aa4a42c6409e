//! The program that keeps what an AF_PACKET port receives from the host's own stack.

use std::os::fd::BorrowedFd;

use aya::maps::Array;
use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{
    LinkOrder, SchedClassifier, SocketFilter, TcAttachType, TestRun, TestRunOptions,
};
use aya::{Ebpf, EbpfLoader};

use super::BpfError;
use crate::interface::Interface;

/// The program, loaded and not attached. `mute.bpf.c` is the source.
pub struct MuteProgram(Ebpf);

/// The program on an interface, until this is dropped or the process dies.
pub struct MuteLink {
    _link: FdLink,
    ebpf: Ebpf,
}

impl MuteLink {
    /// Gives the interface's packets back to the host's stack. When this returns, these packet sockets receive none any
    /// more, and each packet that no socket has received is the stack's.
    pub fn release<'a>(mut self, sockets: impl Iterator<Item = BorrowedFd<'a>>) {
        // Where the kernel has no memory for a filter, its socket receives until it is closed, and so does the stack.
        for socket in sockets {
            let _ = shut(&mut self.ebpf).attach(socket);
        }
        let word = self.ebpf.map_mut(".bss").expect("the object has this map");
        let word = Array::<_, u32>::try_from(word).expect("it is an array of one word");
        let _ = { word }.set(0, 1, 0); // The call fails only for another element.
        drop(self); // Waits until no processor runs the program, nor those of the sockets.
    }
}

impl MuteProgram {
    /// Loads the program.
    pub fn load() -> Result<MuteProgram, BpfError> {
        MuteProgram::load_object(OBJECT)
    }

    /// Loads the program from another object made of the same source, to hold the two against each
    /// other.
    ///
    /// # Panics
    ///
    /// When the object loads and has no program of this name.
    pub fn load_object(object: &[u8]) -> Result<MuteProgram, BpfError> {
        let mut ebpf =
            EbpfLoader::new().btf(None).load(object).map_err(|source| failed("load", source))?;
        program(&mut ebpf).load().map_err(|source| failed("load", source))?;
        shut(&mut ebpf).load().map_err(|source| failed("load", source))?;
        Ok(MuteProgram(ebpf))
    }

    /// Attaches the program to an interface of the calling thread's network namespace, before all other
    /// tcx programs: one that lets a frame pass would keep it from ours.
    pub fn attach(self, interface: &Interface) -> Result<MuteLink, BpfError> {
        self.attach_in_order(interface, LinkOrder::first())
    }

    /// The same behind all others, where programs are attached by default: for tests of a program that was the last one.
    pub fn attach_last(self, interface: &Interface) -> Result<MuteLink, BpfError> {
        self.attach_in_order(interface, LinkOrder::last())
    }

    fn attach_in_order(
        mut self,
        interface: &Interface,
        order: LinkOrder,
    ) -> Result<MuteLink, BpfError> {
        let program = program(&mut self.0);
        let order = TcAttachOptions::TcxOrder(order);
        let id = program
            .attach_with_options(&interface.name, TcAttachType::Ingress, order)
            .map_err(|source| failed("attach", source))?;
        let link = program.take_link(id).map_err(|source| failed("attach", source))?;
        let link = FdLink::try_from(link).map_err(|source| failed("attach", source))?;
        Ok(MuteLink { _link: link, ebpf: self.0 })
    }

    /// What the program says about `frame` (`BPF_PROG_TEST_RUN`): a `TCX_*` number of linux/bpf.h.
    pub fn verdict(&mut self, frame: &[u8]) -> Result<u32, BpfError> {
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        program(&mut self.0)
            .test_run(options)
            .map(|result| result.return_value)
            .map_err(|source| BpfError::TestRun(source.into()))
    }
}

fn failed(
    step: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> BpfError {
    let program = "the program that mutes the host's own stack";
    BpfError::Program { program, step, needs: "Linux 6.6 (tcx)", source: source.into() }
}

fn program(ebpf: &mut Ebpf) -> &mut SchedClassifier {
    let program = ebpf.program_mut("mute").expect("the object has this program");
    program.try_into().expect("it is a classifier")
}

fn shut(ebpf: &mut Ebpf) -> &mut SocketFilter {
    let program = ebpf.program_mut("shut").expect("the object has this program");
    program.try_into().expect("it filters for a socket")
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("mute.bpf.o");
