//! Counter-based random numbers: the n-th number is a function of the seed and n, so any thread can draw any part of a
//! sequence again. The function is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use super::map::{GRAIN, TILE, elements};
use super::simd::vectorised;
use super::stop;
use super::threads::{self, Shared};
use super::variates::{few, gamma, many};
use super::{Float, Number};

/// Arrays start at multiples of this in the sequence, so that kernels may draw in whole blocks; a share of an array
/// starts anywhere.
pub const BLOCK: u64 = 64;

/// The start of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhiloxKey {
    /// The number of the sequence.
    pub seed: u64,
    /// The number of values before the first one.
    pub offset: u64,
}

/// The seed of the sequence of the library.
static SEED: AtomicU64 = AtomicU64::new(0);
/// The number of values of that sequence that were drawn so far.
static OFFSET: AtomicU64 = AtomicU64::new(0);
/// The part of each array that this process draws, and the number of parts, in the high and the low half.
static SHARE: AtomicU64 = AtomicU64::new(1);

/// Restarts the sequence of the library.
pub fn seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
    OFFSET.store(0, Ordering::Relaxed);
}

/// The seed, and the number of values that were drawn.
pub fn state() -> (u64, u64) {
    (SEED.load(Ordering::Relaxed), OFFSET.load(Ordering::Relaxed))
}

/// Continues a sequence from the result of `state`.
pub fn restore(seed: u64, offset: u64) {
    SEED.store(seed, Ordering::Relaxed);
    OFFSET.store(offset.next_multiple_of(BLOCK), Ordering::Relaxed);
}

/// Sets the part of each array that this process draws: part `part` of `parts` equal parts.
pub fn share(part: u32, parts: u32) {
    SHARE.store(u64::from(part) << 32 | u64::from(parts.max(1)), Ordering::Relaxed);
}

/// A record of the keys that this thread draws, for repeating them.
struct DrawTape {
    /// The keys drawn since the start of each recording.
    recording: Vec<Vec<PhiloxKey>>,
    /// The keys to be drawn before new ones, the next one last.
    replaying: Vec<PhiloxKey>,
}

thread_local! {
    /// The keys that this thread records or replays.
    static TAPE: RefCell<DrawTape> = const { RefCell::new(DrawTape { recording: Vec::new(), replaying: Vec::new() }) };
    /// True if this thread records or replays keys.
    static TAPED: Cell<bool> = const { Cell::new(false) };
}

/// Registers the thread-local with a destructor.
pub(super) fn begin_thread() {
    let _ = TAPE.try_with(|_| ());
}

/// Calls `f` with this thread's tape of draws, and notes whether it is in use.
fn with_tape<R>(f: impl FnOnce(&mut DrawTape) -> R) -> R {
    TAPE.with_borrow_mut(|tape| {
        let result = f(tape);
        TAPED.set(!(tape.recording.is_empty() && tape.replaying.is_empty()));
        result
    })
}

/// Notes what this thread draws from now on, until [`recorded`]; may be called again before that.
pub fn record() {
    with_tape(|tape| tape.recording.push(Vec::new()));
}

/// Ends the last [`record`], and returns what was drawn since.
pub fn recorded() -> Vec<PhiloxKey> {
    with_tape(|tape| tape.recording.pop()).unwrap_or_default()
}

/// Lets this thread draw these first, in order; returns what was still to be drawn of the last ones. The library's
/// sequence stays where it is.
pub fn replay(mut keys: Vec<PhiloxKey>) -> Vec<PhiloxKey> {
    keys.reverse();
    let mut left = with_tape(|tape| std::mem::replace(&mut tape.replaying, keys));
    left.reverse();
    left
}

/// Takes the next `count` numbers of the library's sequence.
pub fn draw(count: u64) -> PhiloxKey {
    if TAPED.get() {
        return with_tape(|tape| {
            let key = tape.replaying.pop().unwrap_or_else(|| draw_new(count));
            tape.recording.iter_mut().for_each(|keys| keys.push(key));
            key
        });
    }
    draw_new(count)
}

/// Reserves `count` draws. Ranks of a process group get disjoint parts.
fn draw_new(count: u64) -> PhiloxKey {
    let share = SHARE.load(Ordering::Relaxed);
    let (part, parts) = (share >> 32, share & u64::from(u32::MAX));
    let offset = OFFSET.fetch_add((count * parts).div_ceil(BLOCK) * BLOCK, Ordering::Relaxed);
    PhiloxKey { seed: SEED.load(Ordering::Relaxed), offset: offset + part * count }
}

/// Counters that are turned into words together.
const LANES: usize = 16;
/// Words of one counter.
const WORDS: usize = 4;

/// Philox4x32-10 of several counters: word `w` of counter `l` is `c[w][l]`.
#[inline(always)]
fn philox(mut c: [[u32; LANES]; WORDS], seed: u64) -> [[u32; LANES]; WORDS] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        #[allow(clippy::needless_range_loop)] // four rows at once
        for l in 0..LANES {
            let (a, b) = (0xD251_1F53 * u64::from(c[0][l]), 0xCD9E_8D57 * u64::from(c[2][l]));
            let (c1, c3) = (c[1][l], c[3][l]);
            c[0][l] = (b >> 32) as u32 ^ c1 ^ key[0];
            c[1][l] = b as u32;
            c[2][l] = (a >> 32) as u32 ^ c3 ^ key[1];
            c[3][l] = a as u32;
        }
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// A word as a number from 0 up to but not including 1, of 24 bits.
#[inline(always)]
fn unit(word: u32) -> f64 {
    f64::from(word >> 8) / f64::from(1 << 24)
}

/// A word as a number between 0 and 1, both excluded.
#[inline(always)]
fn inside(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

impl PhiloxKey {
    /// The words of the counters from number `first` on, in their `attempt`.
    #[inline(always)]
    fn counters(self, first: u64, attempt: u32) -> [[u32; LANES]; WORDS] {
        let number = |l: usize| first.wrapping_add(l as u64);
        let low = std::array::from_fn(|l| number(l) as u32);
        let high = std::array::from_fn(|l| (number(l) >> 32) as u32);
        philox([low, high, [attempt; LANES], [0; LANES]], self.seed)
    }

    /// Returns the key with its offset moved down to the start of a block, and the number of words skipped in that
    /// block.
    #[inline(always)]
    fn aligned(self) -> (Self, usize) {
        let skipped = self.offset % BLOCK;
        (Self { offset: self.offset - skipped, ..self }, skipped as usize)
    }

    /// Calls `f(i, word)` for the first `n` words.
    #[inline(always)]
    fn words(self, n: usize, mut f: impl FnMut(usize, u32)) {
        let (blocks, skipped) = self.aligned();
        for start in (0..skipped + n).step_by(LANES * WORDS) {
            let words = blocks.counters((blocks.offset + start as u64) / WORDS as u64, 0);
            for i in start.max(skipped)..(skipped + n).min(start + LANES * WORDS) {
                f(i - skipped, words[i % WORDS][(i - start) / WORDS]);
            }
            if start % GRAIN == 0 {
                stop::poll();
            }
        }
    }

    /// Calls `f(i, words)` with the first `n` words, some of them from number `i` on at a time, in parallel. It must be
    /// `#[inline(always)]`.
    #[inline(always)]
    fn tiles(self, n: usize, f: impl Fn(usize, &[u32]) + Sync + Copy) {
        let (blocks, skipped) = self.aligned();
        threads::ranges(skipped + n, GRAIN, |range| {
            vectorised(
                #[inline(always)]
                move || {
                    let mut words = [0; TILE];
                    for start in range.clone().step_by(TILE) {
                        for (k, block) in words.chunks_exact_mut(LANES * WORDS).enumerate() {
                            let first = blocks.offset + (start + k * LANES * WORDS) as u64;
                            let drawn = blocks.counters(first / WORDS as u64, 0);
                            for (l, words) in block.chunks_exact_mut(WORDS).enumerate() {
                                for w in 0..WORDS {
                                    words[w] = drawn[w][l];
                                }
                            }
                        }
                        let n = TILE.min(range.end - start);
                        let first = skipped.saturating_sub(start).min(n);
                        f(start + first - skipped, &words[first..n]);
                    }
                },
            );
        });
    }

    /// Calls `f(i, word)` for the first `n` words, in parallel. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn for_each(self, n: usize, f: impl Fn(usize, u32) + Sync + Copy) {
        self.tiles(
            n,
            #[inline(always)]
            move |at, words| {
                for (k, word) in words.iter().enumerate() {
                    f(at + k, *word);
                }
            },
        );
    }

    /// Writes `f(elements of x, word)` to each element of `y`, or adds it, in parallel. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn put<T: Float, const N: usize>(
        self,
        y: &mut [T],
        accumulate: bool,
        x: [&[T]; N],
        f: impl Fn([T; N], u32) -> T + Sync + Copy,
    ) {
        assert!(x.iter().all(|x| x.len() == y.len()), "arrays of different lengths");
        let to = Shared::new(y.as_mut_ptr());
        self.for_each(
            y.len(),
            #[inline(always)]
            // SAFETY: the index is one of `y` and comes once, and all are as long.
            move |i, word| unsafe {
                let (v, to) = (f(elements(x, i), word), to.get().add(i));
                to.write(if accumulate { to.read() + v } else { v });
            },
        );
    }

    /// Another word for number `i`, where the first would not do or is not enough.
    fn another(self, i: usize, attempt: u32) -> u32 {
        let at = self.offset + i as u64;
        self.counters(at / WORDS as u64, attempt)[at as usize % WORDS][0]
    }

    /// Numbers from `low` up to but not including `high`, all equally likely.
    pub fn uniform<T: Float>(self, low: f64, high: f64, y: &mut [T]) {
        self.uniform_below(low, high, high, y);
    }

    /// Numbers from `low` up to `high`, all equally likely. Those from `limit` on, which may be below `high`, become
    /// `low`.
    pub fn uniform_below<T: Float>(self, low: f64, high: f64, limit: f64, y: &mut [T]) {
        let (low, high, limit) = (T::of(low), T::of(high), T::of(limit));
        // Half of a range is a number where the whole may be none.
        let (range, half) = (high - low, T::of(0.5) * high - T::of(0.5) * low);
        let wide = range == T::INFINITY;
        let to = Shared::new(y.as_mut_ptr());
        self.for_each(
            y.len(),
            #[inline(always)]
            move |i, word| {
                let unit = T::of(unit(word));
                let v = if wide { low + half * unit + half * unit } else { low + range * unit };
                // The sum may be rounded up to the end that is excluded.
                // SAFETY: each index comes once.
                unsafe { to.get().add(i).write(if v < limit { v } else { low }) };
            },
        );
    }

    /// Calls `f(i, is_kept)` for the first `n` numbers, in order. Each is dropped with probability `p`.
    #[inline(always)]
    pub(super) fn kept(self, n: usize, p: f64, mut f: impl FnMut(usize, bool)) {
        let dropped = (p * 4_294_967_296.0) as u32;
        self.words(n, |i, word| f(i, word >= dropped));
    }

    /// Normally distributed numbers, by the method of Box and Muller.
    pub fn normal<T: Float>(self, mu: f64, sigma: f64, y: &mut [T]) {
        // Two words give two numbers; a share of an array may begin with the second one.
        let before = (self.offset % 2) as usize;
        let (key, n) = (Self { offset: self.offset - before as u64, ..self }, before + y.len());
        let to = Shared::new(y.as_mut_ptr());
        key.tiles(
            n.next_multiple_of(2),
            #[inline(always)]
            move |at, words| {
                let mut numbers = [[0.0; TILE / 2]; 2];
                let [first, second] = &mut numbers;
                for ((first, second), words) in first.iter_mut().zip(second).zip(words.chunks_exact(2)) {
                    let radius = sigma * (-2.0 * Number::ln(inside(words[0]))).sqrt();
                    let angle = std::f64::consts::TAU * inside(words[1]);
                    (*first, *second) = (mu + radius * angle.cos_small(), mu + radius * angle.sin_small());
                }
                for k in (0..words.len()).filter(|k| (before..n).contains(&(at + k))) {
                    // SAFETY: the place lies within `y` and comes once.
                    unsafe { to.get().add(at + k - before).write(T::of(numbers[k % 2][k / 2])) };
                }
            },
        );
    }

    /// Whole numbers from `low` up to but not including `high`, all equally likely (Lemire, "Fast random integer
    /// generation in an interval", 2019).
    pub fn integers(self, low: i64, high: i64, y: &mut [i64]) {
        let range = high.wrapping_sub(low) as u64;
        let n = y.len();
        self.words(n, |i, word| {
            let mut attempt = 0;
            let mut next = || {
                attempt += 1;
                self.another(i, attempt)
            };
            let drawn = if range <= 1 << 32 {
                let mut product = u64::from(word) * range;
                while (product as u32 as u64) < (1 << 32) % range {
                    product = u64::from(next()) * range;
                }
                product >> 32
            } else {
                let wide = |high: u32, low: u32| {
                    u128::from(u64::from(high) << 32 | u64::from(low)) * u128::from(range)
                };
                let mut product = wide(word, next());
                while (product as u64) < range.wrapping_neg() % range {
                    let high = next();
                    product = wide(high, next());
                }
                (product >> 64) as u64
            };
            y[i] = low.wrapping_add(drawn as i64);
        });
    }

    /// Numbers that `draw` makes of as many words as it needs, which it gets as numbers between 0 and 1.
    fn drawn<T: Float>(self, y: &mut [T], draw: impl Fn(&mut dyn FnMut() -> f64) -> f64) {
        let n = y.len();
        self.words(n, |i, word| {
            let (mut attempt, mut word) = (0, Some(word));
            let mut next = || {
                inside(word.take().unwrap_or_else(|| {
                    attempt += 1;
                    self.another(i, attempt)
                }))
            };
            y[i] = T::of(draw(&mut next));
        });
    }

    /// Fills `y` with binomial samples: numbers of successes in `n` trials of probability `p`.
    pub fn binomial<T: Float>(self, n: u64, p: f64, y: &mut [T]) {
        let rare = p.min(1.0 - p);
        self.drawn(y, |next| {
            let count = if n as f64 * rare < 10.0 { few(n, rare, next) } else { many(n as f64, rare, next) };
            if p > 0.5 { n as f64 - count } else { count }
        });
    }

    /// Numbers with a gamma distribution of shape `k` and scale `theta`.
    pub fn gamma<T: Float>(self, k: f64, theta: f64, y: &mut [T]) {
        self.drawn(y, |next| theta * gamma(k, next));
    }

    /// Numbers with a beta distribution.
    pub fn beta<T: Float>(self, alpha: f64, beta: f64, y: &mut [T]) {
        self.drawn(y, |next| {
            let (a, b) = (gamma(alpha, next), gamma(beta, next));
            // Both are too small for a number only where nearly all the weight is at the ends.
            if a + b > 0.0 { a / (a + b) } else { f64::from(u8::from(next() < alpha / (alpha + beta))) }
        });
    }
}

#[cfg(test)]
mod tests;
