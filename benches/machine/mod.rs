//! References for benches: the best time of many calls, and the peak of this machine's multipliers.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kinnor::kernels::simd::{Isa, isa};
use kinnor::kernels::threads::{num_threads, parallel};

static START: OnceLock<Instant> = OnceLock::new();

/// Seconds of the clock. With one thread, seconds of processor time, which other programs do not affect.
fn now() -> f64 {
    #[cfg(unix)]
    if num_threads() == 1 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a valid structure.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        return time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    }
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Returns the seconds of the fastest of many calls.
pub fn best(mut call: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < Duration::from_millis(200) {
        let once = now();
        call();
        best = best.min(now() - once);
    }
    best
}

/// Returns the seconds of the fastest call of each. The calls take turns, so that a disturbance affects all.
#[allow(dead_code)] // not used by every bench
pub fn best_of_each(calls: &mut [Box<dyn FnMut() + '_>]) -> Vec<f64> {
    let (start, mut best) = (Instant::now(), vec![f64::INFINITY; calls.len()]);
    while start.elapsed() < Duration::from_millis(200) * calls.len() as u32 {
        for (call, best) in calls.iter_mut().zip(&mut best) {
            let once = now();
            call();
            *best = best.min(now() - once);
        }
    }
    best
}

/// Runs many rounds of independent multiply-adds in the widest registers. Returns the number of multiply-adds.
#[cfg(target_arch = "x86_64")]
fn multiply_adds() -> usize {
    use std::arch::x86_64::{
        _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps,
        _mm512_set1_ps,
    };
    const ROUNDS: usize = 20_000;
    const CHAINS: usize = 12;
    #[target_feature(enable = "avx512f")]
    fn avx512() {
        let (x, mut sums) = (_mm512_set1_ps(black_box(0.5)), [_mm512_set1_ps(1.0); CHAINS]);
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm512_fmadd_ps(*s, x, x);
            }
        }
        black_box(sums.map(|s| _mm512_reduce_add_ps(s)));
    }
    #[target_feature(enable = "avx2,fma")]
    fn avx2() {
        let (x, mut sums) = (_mm256_set1_ps(black_box(0.5)), [_mm256_set1_ps(1.0); CHAINS]);
        for _ in 0..ROUNDS {
            for s in &mut sums {
                *s = _mm256_fmadd_ps(*s, x, x);
            }
        }
        black_box(sums.map(|s| _mm256_cvtss_f32(s)));
    }
    // SAFETY: `isa` says which instructions the machine has.
    unsafe {
        match isa() {
            Isa::Avx512 => {
                avx512();
                ROUNDS * CHAINS * 16
            }
            Isa::Avx2 => {
                avx2();
                ROUNDS * CHAINS * 8
            }
            _ => 0,
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn multiply_adds() -> usize {
    0
}

/// GFLOP/s of multiply-adds on all threads, zero if unknown.
pub fn peak() -> f64 {
    let threads = num_threads();
    let count = multiply_adds();
    let seconds = best(|| {
        parallel(threads, |_| {
            black_box(multiply_adds());
        });
    });
    2.0 * (count * threads) as f64 / seconds / 1e9
}
