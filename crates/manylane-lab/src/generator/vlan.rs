//! The programs that put a lab host's interface into a VLAN.

use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};

use manylane_io::bpf::BpfError;
use manylane_io::interface::Interface;

/// A VLAN tag: ethertype and VLAN id.
pub type Tag = (u16, u16);

/// An interface in a VLAN until this is dropped: the programs tag each frame that the host sends, and drop a received
/// frame that has another tag or none. `vlan.bpf.c` is the source.
pub struct VlanLink {
    _links: [FdLink; 2],
}

impl VlanLink {
    /// Puts an interface of the calling thread's network namespace into VLAN `outer`, or into `inner` within it.
    pub fn attach(
        interface: &Interface,
        outer: Tag,
        inner: Option<Tag>,
    ) -> Result<VlanLink, BpfError> {
        let word = |(ether_type, vlan): Tag| u32::from(ether_type) << 16 | u32::from(vlan);
        let (outer, inner) = (word(outer), inner.map_or(0, word));
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .override_global("outer", &outer, true)
            .override_global("inner", &inner, true)
            .load(OBJECT)
            .map_err(|source| failed("load", source))?;
        let out = attach(&mut ebpf, "put_on", interface, TcAttachType::Egress)?;
        let back = attach(&mut ebpf, "take_off", interface, TcAttachType::Ingress)?;
        Ok(VlanLink { _links: [out, back] })
    }
}

fn attach(
    ebpf: &mut Ebpf,
    name: &str,
    interface: &Interface,
    direction: TcAttachType,
) -> Result<FdLink, BpfError> {
    let program = ebpf.program_mut(name).expect("the object has this program");
    let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
    program.load().map_err(|source| failed("load", source))?;
    let order = match direction {
        TcAttachType::Ingress => LinkOrder::first(),
        _ => LinkOrder::last(),
    };
    let id = program
        .attach_with_options(&interface.name, direction, TcAttachOptions::TcxOrder(order))
        .map_err(|source| failed("attach", source))?;
    let link = program.take_link(id).map_err(|source| failed("attach", source))?;
    FdLink::try_from(link).map_err(|source| failed("attach", source))
}

fn failed(
    step: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> BpfError {
    let program = "the programs that put an interface into a VLAN";
    BpfError::Program { program, step, needs: "Linux 6.6 (tcx)", source: source.into() }
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("vlan.bpf.o");
