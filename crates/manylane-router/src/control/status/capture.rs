//! Captures of drops, begun.

use std::sync::Arc;

use super::{Status, unpoisoned};
use crate::drops::DropsFile;
use manylane_api::{ApiError, CaptureFile, CapturePart, CaptureRequest, SetError};

impl Status {
    /// Begins a capture of drops. Only one runs at a time: it ends when its file is dropped.
    pub(super) fn begin_capture(&self, request: &CaptureRequest) -> Result<CaptureFile, SetError> {
        let no_room =
            |error: String, help: &str| SetError::NoRoom(ApiError { error, help: help.into() });
        let mut running = unpoisoned(&self.capture);
        if running.upgrade().is_some() {
            return Err(no_room(
                "another capture of drops runs".into(),
                "wait until it ends, or use `manylane capture --point drop`",
            ));
        }
        let description = |interface: &Option<String>, driver: &str| match interface {
            Some(interface) => format!("{driver} on {interface}"),
            None => driver.to_owned(),
        };
        let ports = self.ports.iter();
        let ports =
            ports.map(|port| (port.name.clone(), description(&port.interface, port.driver)));
        let file = DropsFile::begin(&self.sockets, ports.collect(), request.packets, request.snap);
        let mut file = file.map_err(|error| {
            no_room(format!("the capture cannot begin: {error}"), "see `manylane show sockets`")
        })?;
        let place = Arc::new(());
        *running = Arc::downgrade(&place);
        Ok(CaptureFile::new(move |is_over| {
            let _held = &place;
            match file.next(is_over) {
                (bytes, false) => CapturePart::Some(bytes),
                (bytes, true) => CapturePart::Last(bytes),
            }
        }))
    }
}
