//! Buffers compared with the system's allocator: allocate, write all, free.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kinnor::array::Buffer;

fn buffers(c: &mut Criterion) {
    let mut group = c.benchmark_group("allocate");
    for bytes in [64usize, 1 << 10, 16 << 10] {
        group.bench_with_input(BenchmarkId::new("kinnor", bytes), &bytes, |b, &bytes| {
            b.iter(|| drop(black_box(Buffer::new(black_box(bytes)))));
        });
        group.bench_with_input(BenchmarkId::new("system", bytes), &bytes, |b, &bytes| {
            b.iter(|| touch_system(bytes, 1));
        });
    }
    for bytes in [1usize << 20, 4 << 20, 64 << 20] {
        group.throughput(Throughput::Bytes(bytes as u64)).sample_size(10);
        group.bench_with_input(BenchmarkId::new("kinnor, written", bytes), &bytes, |b, &bytes| {
            b.iter(|| {
                let buffer = Buffer::new(bytes).expect("memory");
                // SAFETY: the buffer has this number of bytes.
                unsafe { buffer.ptr().write_bytes(1, bytes) };
                black_box(buffer.ptr());
            });
        });
        group.bench_with_input(BenchmarkId::new("system, written", bytes), &bytes, |b, &bytes| {
            b.iter(|| touch_system(bytes, bytes));
        });
    }
}

fn touch_system(bytes: usize, written: usize) {
    let layout = Layout::from_size_align(bytes, 64).expect("a valid layout");
    // SAFETY: allocated, written within its size and freed with the same layout.
    unsafe {
        let p = black_box(alloc(layout));
        p.write_bytes(1, written);
        black_box(p);
        dealloc(p, layout);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_millis(800));
    targets = buffers
}
criterion_main!(benches);
