//! Collectors: the options of `manylane accelerate` that say what is exported, and where.

use std::time::Duration;

use clap::Args;
use manylane_accelerate::accelerator::{IPFIX_ACTIVE, IPFIX_INACTIVE, IpfixOptions};
use manylane_export::{CollectorAddress, Destination, Transport, ipfix};

/// Flow records.
#[derive(Debug, Default, Args)]
pub(super) struct ExportOptions {
    /// Export a record of each flow that is forwarded by connection, as IPFIX, to this collector: udp://HOST[:PORT] or
    /// tcp://HOST[:PORT]; may be repeated
    #[arg(long, value_name = "URL", value_parser = collector)]
    ipfix: Vec<CollectorAddress>,
    /// Longest time from one record of a flow to the next [default: 60]
    #[arg(long, value_name = "SECONDS", requires = "ipfix", value_parser = seconds())]
    ipfix_active: Option<u64>,
    /// Time without packets after which a flow has its record [default: 15]
    #[arg(long, value_name = "SECONDS", requires = "ipfix", value_parser = seconds())]
    ipfix_inactive: Option<u64>,
    /// Observation domain that records name [default: 1]
    #[arg(long, value_name = "N", requires = "ipfix")]
    ipfix_domain: Option<u32>,
    /// Export no record of translations (NAT) that begin and end
    #[arg(long, requires = "ipfix")]
    ipfix_no_nat: bool,
}

impl ExportOptions {
    /// The options of the exporter, with all names looked up. `is_stateful`: the flow table has room for connections.
    pub(super) fn resolve(&self, is_stateful: bool) -> Result<IpfixOptions, String> {
        if !self.ipfix.is_empty() && !is_stateful {
            return Err("--ipfix exports what connections have counted, and with --flows 0 nothing has exact records: \
                        leave out one of the two"
                .into());
        }
        let collectors = Destination::resolve(&self.ipfix).map_err(|error| error.to_string())?;
        let seconds = |seconds: Option<u64>, other| seconds.map_or(other, Duration::from_secs);
        Ok(IpfixOptions {
            collectors,
            active: seconds(self.ipfix_active, IPFIX_ACTIVE),
            inactive: seconds(self.ipfix_inactive, IPFIX_INACTIVE),
            domain: self.ipfix_domain.unwrap_or(1),
            nat_events: !self.ipfix_no_nat,
        })
    }
}

fn collector(text: &str) -> Result<CollectorAddress, String> {
    let both = [Transport::Udp, Transport::Tcp];
    CollectorAddress::parse(text, &both, ipfix::PORT).map_err(|error| error.to_string())
}

/// From a second to an hour.
fn seconds() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=3600)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        export: ExportOptions,
    }

    fn parsed(words: &str) -> Result<ExportOptions, String> {
        let words = ["manylane"].into_iter().chain(words.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(command.export)
    }

    #[test]
    fn several_collectors_and_their_timeouts_are_taken() {
        let words = "--ipfix udp://127.0.0.1 --ipfix tcp://[::1]:2055 --ipfix-active 1 --ipfix-inactive 5 --ipfix-domain 7";
        let options = parsed(words).expect("they are right").resolve(true).expect("numbers");
        let addresses: Vec<_> =
            options.collectors.iter().map(|one| one.address().to_string()).collect();
        assert_eq!(addresses, ["udp://127.0.0.1:4739", "tcp://[::1]:2055"]);
        let seconds = [options.active, options.inactive].map(|time| time.as_secs());
        assert_eq!((seconds, options.domain, options.nat_events), ([1, 5], 7, true));
        let options = parsed("").expect("nothing").resolve(false).expect("nothing is exported");
        assert!(options.collectors.is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_cure() {
        for (words, says) in [
            ("--ipfix sctp://127.0.0.1", "write udp://HOST or tcp://HOST"),
            ("--ipfix udp://127.0.0.1:0", "write one, or none for port 4739"),
            ("--ipfix udp://127.0.0.1 --ipfix-active 0", "not in 1..=3600"),
            ("--ipfix-inactive 5", "--ipfix <URL>"),
        ] {
            let error = parsed(words).expect_err(words);
            assert!(error.contains(says), "{words}: {error}");
        }
        for (words, is_stateful, says) in [
            ("--ipfix udp://127.0.0.1 --ipfix udp://127.0.0.1:4739", true, "have one address"),
            ("--ipfix udp://no.such.host.invalid", true, "does not resolve"),
            ("--ipfix udp://127.0.0.1", false, "nothing has exact records"),
        ] {
            let error = parsed(words).expect("they can be read").resolve(is_stateful);
            let error = error.expect_err(words);
            assert!(error.contains(says), "{words}: {error}");
        }
    }
}
