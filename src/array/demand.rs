//! How much freed memory a program uses again, and how much is idle. Knows counts of bytes and the time, not memory.

use std::time::{Duration, Instant};

/// Free memory may exceed what recent work used again by a quarter and this many bytes.
pub(super) const SLACK: usize = 64 << 20;
/// Observations count for one to two periods.
const PERIOD: Duration = Duration::from_secs(30);

/// Observations of one period.
#[derive(Clone, Copy)]
struct Observed {
    /// The largest use.
    high: usize,
    /// The largest number of bytes that were freed and then used again.
    again: usize,
    /// The use when they were free. If it falls to less than half of this, the work that used them is over.
    base: usize,
}

impl Observed {
    /// A period that starts with `used` bytes in use.
    const fn start(used: usize) -> Self {
        Self { high: used, again: 0, base: 0 }
    }

    /// Forgets the bytes used again if that work is over, now that `used` bytes are in use.
    #[inline]
    fn forget_finished(&mut self, used: usize) {
        if used < self.base / 2 {
            (self.again, self.base) = (0, 0);
        }
    }
}

/// The use of memory in the current and the last period.
pub(super) struct Demand {
    /// This period.
    now: Observed,
    /// The period before.
    before: Observed,
    /// The smallest use since the largest one of this period.
    low: usize,
    /// The start of this period. None if the time was never asked for.
    start: Option<Instant>,
}

impl Demand {
    /// No use yet.
    pub(super) const fn new() -> Self {
        Self { now: Observed::start(0), before: Observed::start(0), low: 0, start: None }
    }

    /// Notes that `used` bytes are in use.
    #[inline]
    pub(super) fn note(&mut self, used: usize) {
        // Only a rise up to a use that there was before uses memory again. So loading a model does not count.
        let again = used.min(self.now.high).saturating_sub(self.low);
        if again > self.now.again {
            (self.now.again, self.now.base) = (again, self.low);
        }
        if used >= self.now.high {
            (self.now.high, self.low) = (used, used);
        } else if used < self.low {
            self.low = used;
            self.now.forget_finished(used);
            self.before.forget_finished(used);
        }
    }

    /// The largest use of both periods.
    pub(super) fn high(&self) -> usize {
        self.now.high.max(self.before.high)
    }

    /// Free bytes that recent work would not use again. 0 if they are few. `used` bytes are in use, and `free` are not.
    #[inline]
    pub(super) fn idle(&mut self, used: usize, free: usize) -> usize {
        if free <= SLACK {
            return 0;
        }
        let again = self.again(used, Instant::now());
        let needed = again + again / 4;
        // A part of the slack is idle too, so that the next call finds nothing.
        if free > needed + SLACK { free - needed - SLACK / 2 } else { 0 }
    }

    /// The bytes that were freed and used again in both periods. `used` bytes are in use at the time `now`.
    fn again(&mut self, used: usize, now: Instant) -> usize {
        let start = *self.start.get_or_insert(now);
        if now.saturating_duration_since(start) >= PERIOD {
            self.before = std::mem::replace(&mut self.now, Observed::start(used));
            (self.low, self.start) = (used, Some(now));
        }
        self.now.again.max(self.before.again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes each use. Returns the bytes used again, at the same time.
    fn again(demand: &mut Demand, uses: &[usize], now: Instant) -> usize {
        for &used in uses {
            demand.note(used);
        }
        demand.again(uses[uses.len() - 1], now)
    }

    #[test]
    fn only_memory_that_was_freed_is_used_again() {
        let (mut demand, now) = (Demand::new(), Instant::now());
        assert_eq!(again(&mut demand, &[10, 20, 100], now), 0); // a model is loaded
        assert_eq!(again(&mut demand, &[150, 180, 150, 120, 100], now), 0); // the first step
        assert_eq!(again(&mut demand, &[130, 180, 100], now), 80);
        assert_eq!(again(&mut demand, &[190, 100, 200], now), 90); // 10 bytes are new in both
        assert_eq!(demand.high(), 200);
    }

    #[test]
    fn work_that_is_over_uses_nothing_again() {
        let (mut demand, now) = (Demand::new(), Instant::now());
        assert_eq!(again(&mut demand, &[100, 300, 100, 300], now), 200);
        assert_eq!(again(&mut demand, &[50], now + PERIOD), 200); // of the period before
        assert_eq!(again(&mut demand, &[49], now + PERIOD), 0); // the model is deleted
        assert_eq!(again(&mut demand, &[300, 0, 300, 0], now + PERIOD), 300); // for each step a new one
    }

    #[test]
    fn observations_are_forgotten_after_two_periods() {
        let (mut demand, now) = (Demand::new(), Instant::now());
        assert_eq!(again(&mut demand, &[100, 40, 90], now), 50);
        assert_eq!(again(&mut demand, &[60], now + PERIOD), 50);
        assert_eq!((again(&mut demand, &[50, 60], now + PERIOD), demand.high()), (50, 100));
        assert_eq!((again(&mut demand, &[50], now + 2 * PERIOD), demand.high()), (10, 60));
        assert_eq!((again(&mut demand, &[50], now + 9 * PERIOD), demand.high()), (0, 50));
        assert_eq!(again(&mut demand, &[50], now), 0); // a clock that goes back
    }

    #[test]
    fn memory_is_idle_if_it_exceeds_what_is_used_again() {
        let mut demand = Demand::new();
        assert_eq!((demand.idle(0, SLACK), demand.idle(0, 3 * SLACK)), (0, 3 * SLACK - SLACK / 2));
        for used in [4 * SLACK, 0, 4 * SLACK, 0] {
            demand.note(used);
        }
        assert_eq!(
            (demand.idle(0, 6 * SLACK), demand.idle(0, 7 * SLACK)),
            (0, 7 * SLACK - 5 * SLACK - SLACK / 2)
        );
    }
}
