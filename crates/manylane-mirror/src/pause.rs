//! Long walks do not keep their thread from other things.

/// Steps between two pauses: each is a look into a table of millions or two, some hundred nanoseconds.
const STEPS: u32 = 4096;

/// Calls other work once in a fixed number of steps.
pub(super) struct Pause<F> {
    steps: u32,
    meanwhile: F,
}

impl<F: FnMut()> Pause<F> {
    pub fn new(meanwhile: F) -> Pause<F> {
        Pause { steps: 0, meanwhile }
    }

    /// One step of a walk was done.
    pub fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) {
            (self.meanwhile)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pauses_again_and_again() {
        let mut pauses = 0;
        let mut pause = Pause::new(|| pauses += 1);
        (0..3 * STEPS + 1).for_each(|_| pause.step());
        assert_eq!(pauses, 3);
    }
}
