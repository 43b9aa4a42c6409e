//! A set of points at which packets are seen.

use std::ops::{BitOr, BitOrAssign};

use super::Point;

/// Points of attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points(u8);

impl Points {
    /// None.
    pub const NONE: Points = Points(0);
    /// What is received.
    pub const RECEIVE: Points = Points::of(Point::Receive);
    /// What is transmitted.
    pub const TRANSMIT: Points = Points::of(Point::Transmit);
    /// What is dropped.
    pub const DROP: Points = Points::of(Point::Drop);
    /// All of them, for a trace: no point of a socket.
    pub const TRACE: Points = Points(1 << 7);

    /// This one.
    pub const fn of(point: Point) -> Points {
        Points(1 << point as u8)
    }

    /// Whether this one is among them.
    #[inline(always)]
    pub const fn has(self, point: Point) -> bool {
        self.0 & Points::of(point).0 != 0
    }

    /// Whether any of these is among them.
    #[inline(always)]
    pub const fn has_any(self, others: Points) -> bool {
        self.0 & others.0 != 0
    }

    /// These, and a trace's.
    pub const fn or_trace(self) -> Points {
        Points(self.0 | Points::TRACE.0)
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Points {
    type Output = Points;

    fn bitor(self, other: Points) -> Points {
        Points(self.0 | other.0)
    }
}

impl BitOrAssign for Points {
    fn bitor_assign(&mut self, other: Points) {
        *self = *self | other;
    }
}
