//! The word that lets packets pass: until when, for programs and for readers.

use manylane_sync::words::WordsMut;

use super::layout::control;

/// The writer of the lease, which is another than that of the tables: a notification revokes the lease whatever the
/// tables' writer does meanwhile.
pub struct LeaseMut(WordsMut<u64>);

impl LeaseMut {
    /// Takes the lease's words out of `control`. Nothing may be forwarded yet.
    pub(super) fn split_off(control: &mut WordsMut<u64>) -> LeaseMut {
        LeaseMut(control.split_off(control::LEASE_TICKS))
    }

    /// Writes until when packets may be forwarded, in nanoseconds of `CLOCK_MONOTONIC_COARSE`: after all known changes
    /// were written. `until_ticks` says so to programs, in ticks of the kernel (jiffies).
    pub fn set(&mut self, until_ns: u64, until_ticks: u64) {
        self.0.publish(0, until_ticks);
        self.0.publish(control::LEASE - control::LEASE_TICKS, until_ns);
    }

    /// From now on everything is the kernel's, until [`set`](LeaseMut::set).
    pub fn revoke(&mut self) {
        self.set(0, 0);
    }
}
