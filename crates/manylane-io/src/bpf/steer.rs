//! The program that selects a queue of a TAP port by flow hash.

use std::os::fd::{AsFd, BorrowedFd};

use aya::programs::{SocketFilter, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};

use super::BpfError;

/// The loaded program (`steer.bpf.c`). A copy of its descriptor keeps the program loaded after this is dropped.
pub struct SteerProgram(Ebpf);

impl SteerProgram {
    /// Loads the program.
    pub fn load() -> Result<SteerProgram, BpfError> {
        SteerProgram::load_object(OBJECT)
    }

    /// Loads the program from another object of the same source, to compare the two.
    ///
    /// # Panics
    ///
    /// When the object loads and has no program of this name.
    pub fn load_object(object: &[u8]) -> Result<SteerProgram, BpfError> {
        let mut ebpf =
            EbpfLoader::new().btf(None).load(object).map_err(|source| failed(source.into()))?;
        program(&mut ebpf).load().map_err(|source| failed(source.into()))?;
        Ok(SteerProgram(ebpf))
    }

    /// The hash that the program computes for `frame` (`BPF_PROG_TEST_RUN`).
    pub fn hash(&mut self, frame: &[u8]) -> Result<u32, BpfError> {
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        program(&mut self.0)
            .test_run(options)
            .map(|result| result.return_value)
            .map_err(|source| BpfError::TestRun(source.into()))
    }

    /// The kernel's id of the program.
    #[cfg(test)]
    pub fn id(&mut self) -> u32 {
        program(&mut self.0).info().expect("it is loaded").id()
    }

    /// The program's descriptor, for `TUNSETSTEERINGEBPF`.
    pub fn fd(&mut self) -> BorrowedFd<'_> {
        program(&mut self.0).fd().expect("it is loaded").as_fd()
    }
}

fn failed(source: Box<dyn std::error::Error + Send + Sync>) -> BpfError {
    let program = "the program that steers flows to queues";
    BpfError::Program { program, step: "load", needs: "Linux 4.18", source }
}

fn program(ebpf: &mut Ebpf) -> &mut SocketFilter {
    let program = ebpf.program_mut("steer").expect("the object has this program");
    program.try_into().expect("it is a socket filter")
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("steer.bpf.o");
