//! Attributes the kernel's drops of unread packets to a cause.

/// Packets that the kernel dropped because its queue was full, by cause.
///
/// While a receiver has no frames it does not read, and the queue fills: those packets are lost for lack of frames,
/// all others because the worker is too slow.
#[derive(Debug, Default)]
pub struct Lost {
    dry: bool,
    /// Lost while frames were free.
    pub slow: u64,
    /// Lost while no frame was free.
    pub no_buffer: u64,
}

impl Lost {
    /// Adds `lost` packets since the last call.
    pub fn add(&mut self, lost: u64) {
        match self.dry {
            true => self.no_buffer += lost,
            false => self.slow += lost,
        }
    }

    /// Sets whether frames are lacking now; `lost` returns how many packets were lost since the last call,
    /// and is called only when that changes.
    #[inline]
    pub fn set_dry(&mut self, dry: bool, lost: impl FnOnce() -> u64) {
        if dry != self.dry {
            self.add(lost());
            self.dry = dry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_belong_to_the_time_before_they_were_seen() {
        let mut lost = Lost::default();
        lost.set_dry(true, || 3);
        lost.set_dry(true, || unreachable!("nothing has changed"));
        lost.add(5);
        lost.set_dry(false, || 1);
        lost.add(2);
        assert_eq!((lost.slow, lost.no_buffer), (5, 6));
    }
}
