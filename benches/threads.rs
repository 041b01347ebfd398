//! The cost of distributing a small loop: our pool compared with rayon, on idle cores and with a busy neighbour on
//! each.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use kinnor::kernels::threads::{Shared, num_threads, parallel};
use rayon::prelude::*;

/// Does about `us` microseconds of arithmetic.
fn work(us: usize) -> f32 {
    (0..us * 400).fold(1.0_f32, |x, _| black_box(x * 0.999 + 0.1))
}

fn loops(c: &mut Criterion, load: &str) {
    let n = num_threads();
    for us in [0, 5, 50] {
        let mut group = c.benchmark_group(format!("{load}, {n} chunks of {us} us"));
        let mut out = vec![0_f32; n];
        group.bench_function("serial", |b| b.iter(|| out.iter_mut().for_each(|v| *v = work(us))));
        group.bench_function("kinnor", |b| {
            let p = Shared::new(out.as_mut_ptr());
            // SAFETY: each chunk writes only its own element.
            b.iter(|| parallel(n, |i| unsafe { *p.get().add(i) = work(us) }));
        });
        group.bench_function("rayon", |b| b.iter(|| out.par_iter_mut().for_each(|v| *v = work(us))));
    }
    let mut group = c.benchmark_group(format!("{load}, after 1 ms of sleep"));
    let pause = || std::thread::sleep(Duration::from_millis(1));
    group.bench_function("kinnor", |b| {
        b.iter_batched(
            pause,
            |()| {
                parallel(n, |_| {
                    black_box(work(5));
                });
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.bench_function("rayon", |b| {
        b.iter_batched(
            pause,
            |()| {
                (0..n).into_par_iter().for_each(|_| {
                    black_box(work(5));
                });
            },
            criterion::BatchSize::PerIteration,
        );
    });
}

fn all(c: &mut Criterion) {
    loops(c, "idle");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..num_threads() {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    black_box(work(1));
                }
            });
        }
        loops(c, "busy");
        stop.store(true, Ordering::Relaxed);
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(20);
    targets = all
}
criterion_main!(benches);
