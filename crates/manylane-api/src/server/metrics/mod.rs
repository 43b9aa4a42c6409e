//! `/metrics`: the same counters for Prometheus and its kin, as OpenMetrics 1.0 where the client accepts it, and
//! otherwise in the older text format (`format.rs`).
//!
//! Nothing is counted twice: each scrape reads what the API shows. Names follow the conventions of Prometheus: the
//! unit is in the name, a counter ends in `_total`, what adds up is a label. The answers of a scrape are taken one
//! after another, so while packets pass its sums are off by what passed meanwhile.

mod accelerator;
mod export;
mod format;
mod forwarder;
mod interface;
mod lane;
mod sflow;
#[cfg(test)]
pub(crate) mod strict;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::bounds::{Asker, Bound, Limits};
use super::document::{OperationDoc, Sent};

use format::Format;

pub(super) use accelerator::write as accelerator;
pub(super) use forwarder::write as forwarder;

/// Where it is.
pub(super) const METRICS: &str = "/metrics";

/// What writes all metrics of a source.
pub(super) type Write<S> = fn(&S, &mut Page<'_>) -> fmt::Result;

/// A page that is being written.
pub(super) struct Page<'p>(DescriptorEncoder<'p>);

/// Names and values of a sample's labels.
type Labels = Vec<(&'static str, String)>;

/// One metric of each element of a list: name, unit (empty for none), help, value.
type Column<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

/// Answers with a page.
pub(super) fn answer<S: ?Sized + Send + Sync + 'static>(write: Write<S>) -> MethodRouter<Arc<S>> {
    get(async move |State(source): State<Arc<S>>, asker: Extension<Asker>, headers: HeaderMap| {
        let format = Format::wanted(&headers);
        let page = page(source, write, asker.limits.clone(), format);
        let headers = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
        (headers, page).into_response()
    })
}

/// What a body of it may be.
const KINDS: &[&str] = &[Format::Text.content_type(), Format::Open.content_type()];

/// What the API's document says of it.
pub(super) fn doc() -> OperationDoc {
    OperationDoc {
        id: "metrics",
        does: "The counters for Prometheus: OpenMetrics 1.0 where `Accept` names it, else the older text format.",
        parameters: &[],
        takes: None,
        gives: Sent::Texts("A page.", KINDS),
        refuses: &[],
    }
}

/// All that a source counts.
fn page<S: ?Sized + Send + Sync + 'static>(
    source: Arc<S>,
    write: Write<S>,
    limits: Arc<Limits>,
    format: Format,
) -> String {
    let mut registry = Registry::with_prefix("manylane");
    registry.register_collector(Box::new(Scrape { source, write, limits }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a text takes all that is written to it");
    match format {
        Format::Open => text,
        Format::Text => format::to_text(&text),
    }
}

struct Scrape<S: ?Sized> {
    source: Arc<S>,
    write: Write<S>,
    /// The API's own.
    limits: Arc<Limits>,
}

impl<S: ?Sized> fmt::Debug for Scrape<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl<S: ?Sized + Send + Sync + 'static> Collector for Scrape<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut Page(encoder);
        (self.write)(&self.source, page)?;
        api(&self.limits, page)
    }
}

/// The bounds on clients, each with how often it was reached.
fn api(limits: &Limits, page: &mut Page<'_>) -> fmt::Result {
    let samples = Bound::ALL.map(|bound| (labels([("bound", bound.name())]), limits.times(bound)));
    page.counter("api_refused", "", "Clients of the API that reached a bound.", samples)
}

impl Page<'_> {
    /// What only grows. Its name gets the unit, and `_total`.
    fn counter<V: EncodeCounterValue>(
        &mut self,
        name: &str,
        unit: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        self.family(name, unit, help, MetricType::Counter, samples, |metric, value| {
            metric.encode_counter::<NoLabelSet, _, u64>(value, None)
        })
    }

    /// What goes up and down.
    fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        unit: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        self.family(name, unit, help, MetricType::Gauge, samples, |metric, value| {
            metric.encode_gauge(value)
        })
    }

    /// What is no number: always 1, its labels say it. Its name gets `_info`.
    fn info(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Labels>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Info)?;
        samples.into_iter().try_for_each(|labels| metric.encode_info(&labels))
    }

    /// Counters of each of `things`.
    fn counters<T>(
        &mut self,
        columns: &[Column<T>],
        things: &[T],
        labels: fn(&T) -> Labels,
    ) -> fmt::Result {
        columns.iter().try_for_each(|(name, unit, help, value)| {
            self.counter(name, unit, help, things.iter().map(|thing| (labels(thing), value(thing))))
        })
    }

    /// Gauges of each of `things`.
    fn gauges<T>(
        &mut self,
        columns: &[Column<T>],
        things: &[T],
        labels: fn(&T) -> Labels,
    ) -> fmt::Result {
        columns.iter().try_for_each(|(name, unit, help, value)| {
            self.gauge(name, unit, help, things.iter().map(|thing| (labels(thing), value(thing))))
        })
    }

    fn family<V>(
        &mut self,
        name: &str,
        unit: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (Labels, V)>,
        write: impl Fn(&mut MetricEncoder<'_>, &V) -> fmt::Result,
    ) -> fmt::Result {
        let unit = match unit {
            "" => None,
            "bytes" => Some(Unit::Bytes),
            "seconds" => Some(Unit::Seconds),
            other => Some(Unit::Other(other.into())),
        };
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            // Without labels it is written without the braces of none.
            match labels.is_empty() {
                true => write(&mut metric, &value)?,
                false => write(&mut metric.encode_family(&labels)?, &value)?,
            }
        }
        Ok(())
    }
}

/// A metric without labels.
fn single<V>(value: V) -> [(Labels, V); 1] {
    [(Labels::new(), value)]
}

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

/// Parts by reason, or what else their names are.
fn parts<'p>(
    of: Labels,
    name: &'static str,
    parts: impl IntoIterator<Item = (&'p String, &'p u64)>,
) -> Vec<(Labels, u64)> {
    let part = |(part, number): (&String, &u64)| {
        let mut labels = of.clone();
        labels.push((name, part.clone()));
        (labels, *number)
    };
    parts.into_iter().map(part).collect()
}

/// `_seconds`, from nanoseconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
