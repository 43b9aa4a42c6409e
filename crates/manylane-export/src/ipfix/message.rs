//! Messages: a header and sets (RFC 7011, section 3).

use super::record::Record;
use super::template::{self, Template};
use crate::collector::Load;

/// Bytes of a message: what IPv6's smallest MTU leaves beside the headers of IPv6 and UDP, so that nothing is fragmented
/// (RFC 7011, section 10.3.3).
pub const MESSAGE_MAX: usize = 1280 - 40 - 8;

/// A message that is being written.
#[derive(Debug)]
pub struct MessageBuilder {
    bytes: Vec<u8>,
    /// Where the open set begins, and its id.
    set: Option<(usize, u16)>,
    data_records: u32,
    load: Load,
    has_templates: bool,
}

impl MessageBuilder {
    /// An empty message of an observation domain. `sequence` is the number of data records sent before it in the session;
    /// `time` is in seconds since 1970.
    pub fn new(domain: u32, sequence: u32, time: u32) -> MessageBuilder {
        let mut bytes = Vec::with_capacity(MESSAGE_MAX);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend([0; 2]); // The length, by `finish`.
        bytes.extend(time.to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(domain.to_be_bytes());
        let load = Load::default();
        MessageBuilder { bytes, set: None, data_records: 0, load, has_templates: false }
    }

    /// Adds all templates. To be the first of a message.
    pub fn add_templates(&mut self) {
        self.open(TEMPLATE_SET);
        template::write_all(&mut self.bytes);
        // nfdump reads the first template of such a set, and leaves out the others.
        for options in template::write_options() {
            self.open(OPTIONS_TEMPLATE_SET);
            self.bytes.extend(options);
        }
        self.has_templates = true;
    }

    /// Adds a record. Whether it had room.
    #[must_use]
    pub fn add(&mut self, record: &Record) -> bool {
        let is_added = match record {
            Record::Flow(flow) => self.add_by(template::of_flow(flow), flow),
            Record::Nat(event) => self.add_by(template::of_event(event), event),
            Record::Sampled(flow) => self.add_by(template::of_sampled(flow), flow),
        };
        if is_added {
            self.load += record.load();
        }
        is_added
    }

    /// Adds a record by its template.
    pub(super) fn add_by<T>(&mut self, template: &Template<T>, record: &T) -> bool {
        let is_open = self.set.is_some_and(|(_, id)| id == template.id);
        let header = if is_open { 0 } else { SET_HEADER };
        if self.bytes.len() + header + template.record_bytes() > MESSAGE_MAX {
            return false;
        }
        if !is_open {
            self.open(template.id);
        }
        template.write_record(record, &mut self.bytes);
        self.data_records += 1;
        true
    }

    /// Data records, those of options too: what the sequence number grows by.
    pub fn data_records(&self) -> u32 {
        self.data_records
    }

    /// What its flows and translations are.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.data_records == 0 && !self.has_templates
    }

    /// The message.
    pub fn finish(mut self) -> Vec<u8> {
        self.close();
        let length = self.bytes.len() as u16;
        self.bytes[2..4].copy_from_slice(&length.to_be_bytes());
        self.bytes
    }

    fn open(&mut self, id: u16) {
        self.close();
        self.set = Some((self.bytes.len(), id));
        self.bytes.extend(id.to_be_bytes());
        self.bytes.extend([0; 2]); // The length, by `close`.
    }

    fn close(&mut self) {
        if let Some((begin, _)) = self.set.take() {
            let length = (self.bytes.len() - begin) as u16;
            self.bytes[begin + 2..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
const SET_HEADER: usize = 4;
