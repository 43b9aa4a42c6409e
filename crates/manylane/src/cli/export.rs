//! Collectors: the options of `manylane accelerate` that say what is exported, and where.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use manylane_accelerate::accelerator::{IPFIX_ACTIVE, IPFIX_INACTIVE, IpfixOptions};
use manylane_export::sflow::{POLLING, RATE, SflowOptions, read_collector, read_rate};
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
    /// Export sampled flow records, of one packet in N, for packets that are forwarded without a flow table; N is that of
    /// all records
    #[arg(long, value_name = "N", requires = "ipfix", value_parser = read_rate)]
    ipfix_sampling: Option<u32>,
}

impl ExportOptions {
    /// The options of the exporter, with all names looked up. `is_stateful`: the flow table has room for connections.
    pub(super) fn resolve(&self, is_stateful: bool) -> Result<IpfixOptions, String> {
        if !self.ipfix.is_empty() && !is_stateful && self.ipfix_sampling.is_none() {
            return Err("--ipfix exports what connections have counted, and with --flows 0 nothing has exact records: \
                        leave out one of the two, or add --ipfix-sampling"
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
            sampling: self.ipfix_sampling,
        })
    }
}

/// Flow records cannot be of more samples than sFlow takes: both are made of the same ones.
pub(super) fn check_rates(
    ipfix: &IpfixOptions,
    sflow: Option<&SflowOptions>,
) -> Result<(), String> {
    let (Some(records), Some(sflow)) = (ipfix.sampling, sflow) else { return Ok(()) };
    let rate = sflow.port_rates.values().copied().fold(sflow.rate, u32::max);
    if records >= rate {
        return Ok(());
    }
    Err(format!(
        "--ipfix-sampling {records} wants more samples than sFlow takes, one packet in {rate}: choose {rate} or more, or a \
         smaller N of --sflow-rate and --sflow-port-rate"
    ))
}

/// Samples of packets.
#[derive(Debug, Default, Args)]
pub(super) struct SampleOptions {
    /// Send samples of received packets, and interface counters, to this sFlow collector; may be repeated
    #[arg(long, value_name = "HOST[:PORT]", value_parser = read_collector)]
    sflow: Vec<CollectorAddress>,
    /// Sample one received packet in N [default: 1000]
    #[arg(long, value_name = "N", requires = "sflow", value_parser = read_rate)]
    sflow_rate: Option<u32>,
    /// Sample one packet in N that this interface receives; may be repeated
    #[arg(long, value_name = "IF=N", requires = "sflow", value_parser = port_rate)]
    sflow_port_rate: Vec<(String, u32)>,
    /// Time between two samples of an interface's counters [default: 20]
    #[arg(long, value_name = "SECONDS", requires = "sflow", value_parser = seconds())]
    sflow_polling: Option<u64>,
    /// The router's address, as collectors are to know it [default: the address by which the first collector is reached]
    #[arg(long, value_name = "ADDRESS", requires = "sflow")]
    sflow_agent: Option<IpAddr>,
}

impl SampleOptions {
    /// The options of the sampler, with all names looked up; `None` without a collector.
    pub(super) fn resolve(&self, interfaces: &[String]) -> Result<Option<SflowOptions>, String> {
        if self.sflow.is_empty() {
            return Ok(None);
        }
        let of_none = self.sflow_port_rate.iter().find(|(name, _)| !interfaces.contains(name));
        if let Some((name, _)) = of_none {
            let all = interfaces.join(", ");
            return Err(format!(
                "--sflow-port-rate names {name}, which is none of the interfaces: {all}"
            ));
        }
        let collectors = Destination::resolve(&self.sflow).map_err(|error| error.to_string())?;
        Ok(Some(SflowOptions {
            rate: self.sflow_rate.unwrap_or(RATE),
            port_rates: self.sflow_port_rate.iter().cloned().collect(),
            polling: self.sflow_polling.map_or(POLLING, Duration::from_secs),
            agent: self.sflow_agent,
            ..SflowOptions::new(collectors)
        }))
    }
}

/// `eth0=1000`.
fn port_rate(text: &str) -> Result<(String, u32), String> {
    let (interface, rate) =
        text.split_once('=').ok_or("an interface, = and a number are wanted")?;
    Ok((interface.into(), read_rate(rate)?))
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
        #[command(flatten)]
        samples: SampleOptions,
    }

    fn command(words: &str) -> Result<Command, String> {
        let words = ["manylane"].into_iter().chain(words.split_whitespace());
        Command::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn parsed(words: &str) -> Result<ExportOptions, String> {
        command(words).map(|command| command.export)
    }

    fn sampled(words: &str) -> Result<Option<SflowOptions>, String> {
        command(words)?.samples.resolve(&["lan".into(), "wan".into()])
    }

    fn rates(words: &str) -> Result<(), String> {
        let records = parsed(words)?.resolve(true)?;
        check_rates(&records, sampled(words)?.as_ref())
    }

    #[test]
    fn sampled_flow_records_need_a_collector_and_enough_samples() {
        let options = parsed("--ipfix udp://127.0.0.1 --ipfix-sampling 50").expect("it is right");
        // Without a flow table nothing is exact, and all is sampled.
        let options = options.resolve(false).expect("a number");
        assert_eq!((options.sampling, options.sampled_domain()), (Some(50), 0x8000_0001));
        let both = "--ipfix udp://127.0.0.1 --sflow 127.0.0.1";
        for (words, says) in [
            (format!("{both} --ipfix-sampling 1000"), None),
            (format!("{both} --ipfix-sampling 100 --sflow-rate 50"), None),
            (format!("{both} --sflow-rate 10"), None),
            (format!("{both} --ipfix-sampling 999"), Some("choose 1000 or more")),
            (
                format!("{both} --ipfix-sampling 100 --sflow-rate 50 --sflow-port-rate wan=200"),
                Some("choose 200 or more"),
            ),
            (format!("{both} --ipfix-sampling 0"), Some("one packet in 0 cannot be sampled")),
            (format!("{both} --ipfix-sampling x"), Some("a number from 1 to 16777216 is wanted")),
            ("--ipfix-sampling 5".into(), Some("--ipfix <URL>")),
        ] {
            match (rates(&words), says) {
                (Ok(()), None) => {}
                (Err(error), Some(says)) => assert!(error.contains(says), "{words}: {error}"),
                (result, _) => panic!("{words}: {result:?}"),
            }
        }
    }

    fn addresses(collectors: &[Destination]) -> Vec<String> {
        collectors.iter().map(|one| one.address().to_string()).collect()
    }

    #[test]
    fn collectors_of_samples_need_no_transport_and_ports_may_have_rates_of_their_own() {
        assert_eq!(sampled(""), Ok(None));
        let words = "--sflow 127.0.0.1 --sflow udp://[::1]:7000 --sflow-rate 9 --sflow-port-rate wan=4 \
                     --sflow-polling 3 --sflow-agent 10.0.0.1";
        let options = sampled(words).expect("they are right").expect("a collector");
        assert_eq!(addresses(&options.collectors), ["udp://127.0.0.1:6343", "udp://[::1]:7000"]);
        assert_eq!((options.rate, options.port_rates.get("wan")), (9, Some(&4)));
        assert_eq!((options.polling.as_secs(), options.agent), (3, "10.0.0.1".parse().ok()));
        for (words, says) in [
            ("--sflow 127.0.0.1 --sflow-rate 0", "one packet in 0 cannot be sampled"),
            ("--sflow 127.0.0.1 --sflow-port-rate lan", "= and a number are wanted"),
            ("--sflow 127.0.0.1 --sflow-port-rate eth9=5", "none of the interfaces: lan, wan"),
            ("--sflow tcp://127.0.0.1", "write udp://HOST"),
            ("--sflow 127.0.0.1 --sflow 127.0.0.1:6343", "have one address"),
            ("--sflow-rate 5", "--sflow <HOST[:PORT]>"),
        ] {
            let error = sampled(words).expect_err(words);
            assert!(error.contains(says), "{words}: {error}");
        }
    }

    #[test]
    fn several_collectors_and_their_timeouts_are_taken() {
        let words = "--ipfix udp://127.0.0.1 --ipfix tcp://[::1]:2055 --ipfix-active 1 --ipfix-inactive 5 --ipfix-domain 7";
        let options = parsed(words).expect("they are right").resolve(true).expect("numbers");
        assert_eq!(addresses(&options.collectors), ["udp://127.0.0.1:4739", "tcp://[::1]:2055"]);
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
