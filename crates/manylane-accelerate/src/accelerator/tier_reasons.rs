//! Why a port has its tier: in words, for logs and the API.

use std::io;

use crate::programs::Failure;

use super::checksums::Found;
use super::ports::Port;
use super::{TierChoice, reason};
use crate::gate::{DriverStanding, Reason};
use manylane_api::accelerate::ReasonStatus;

/// Why a port has the tier that it has, and not a faster one.
pub(super) fn reasons(port: &Port, standing: Option<&DriverStanding>) -> Vec<ReasonStatus> {
    let driver = &port.driver;
    let mut reasons: Vec<_> = driver.plan.reasons.iter().map(reason).collect();
    let Some(standing) = standing.filter(|_| port.choice != TierChoice::Kernel) else {
        return reasons;
    };
    reasons.extend(warning(port.choice, standing).as_ref().map(reason));
    match port.choice {
        TierChoice::Ingress => {
            reasons.push(said("the tier is set to ingress".into(), "by the operator's word"));
        }
        TierChoice::Auto if reasons.is_empty() => {
            reasons.push(said("the driver runs XDP programs".into(), "so it is chosen"));
        }
        _ => {}
    }
    if let Some(trouble) = &driver.trouble {
        reasons.push(said(trouble.clone(), "it is tried again once a second"));
    }
    if let Some(Failure { flushes, frames, errno }) = driver.failure {
        let error = io::Error::from_raw_os_error(errno);
        let what = format!(
            "the driver refused frames ({error}): {flushes} times since it was trusted, {frames} lost in all"
        );
        let why = "it said that it takes them: no more are redirected there until something about links or \
                   their features changes";
        reasons.push(said(what, why));
    }
    if let Some(Found { partial, candidates }) = driver.checksums.found() {
        let what = format!(
            "{partial} of {candidates} received packets have a checksum that is still to be filled in"
        );
        let why = "in the driver that is not seen, so `ingress` forwards packets received here until the link changes or the \
                   tier is set again; where the sender is, `ethtool -K IF tx off` fills them in";
        reasons.push(said(what, why));
    }
    reasons.extend(driver.sockets.reasons(driver.plan.workers));
    let [comes, goes] = match driver.plan.workers {
        true => [
            "workers are about to forward received packets",
            "what leaves is about to be sent by workers",
        ],
        false => [
            "the driver is about to forward received packets",
            "the driver is about to transmit packets",
        ],
    };
    for (is_late, what) in [
        (driver.may_use_ingress() && !driver.ingress, comes),
        (driver.may_use_egress() && !driver.egress, goes),
    ] {
        if is_late {
            reasons.push(said(
                what.into(),
                "when the egress ports' queues are empty: nothing is to be overtaken",
            ));
        }
    }
    reasons
}

/// What speaks against a tier that the operator has named, if anything does.
pub(super) fn warning(choice: TierChoice, standing: &DriverStanding) -> Option<Reason> {
    match choice {
        TierChoice::Driver | TierChoice::Workers => standing.warning(choice.name()),
        TierChoice::Auto | TierChoice::Ingress | TierChoice::Kernel => None,
    }
}

fn said(what: String, why: &str) -> ReasonStatus {
    ReasonStatus { what, why: why.into(), command: String::new() }
}
