//! Overhead of the engine without its kernels: building, running forward and backward, and freeing functions of 16
//! elements.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, connect, settings};
use kinnor::ops::{self, Op, Value};

const N: u64 = 1000;

fn add_one() -> Op {
    let entry = ops::find("add_scalar").expect("is registered");
    entry.bind(&[Value::Float(1.0), Value::Bool(false)], u64::MAX).expect("binds")
}

fn chain(x: &Variable, op: &Op) -> Variable {
    let mut y = x.clone();
    for _ in 0..N {
        y = connect(op.clone(), &[&y], &[]).expect("builds").remove(0);
    }
    y
}

fn engine(c: &mut Criterion) {
    let x = Variable::from_values([16], &[0.5; 16]).expect("fits").with_need_grad(true);
    let op = add_one();
    let mut group = c.benchmark_group("engine, for each function of a chain of 1000");
    group.throughput(Throughput::Elements(N)).sample_size(30);
    group.bench_function("build", |b| b.iter_batched(|| (), |()| chain(&x, &op), BatchSize::PerIteration));
    group.bench_function("free", |b| b.iter_batched(|| chain(&x, &op), drop, BatchSize::PerIteration));
    let y = chain(&x, &op);
    group.bench_function("forward", |b| b.iter(|| y.forward(&ForwardOptions::default())));
    group.bench_function("forward, cleared behind", |b| {
        b.iter(|| y.forward(&ForwardOptions { clear_buffer: true, ..Default::default() }));
    });
    y.forward(&ForwardOptions::default()).expect("runs");
    group.bench_function("backward", |b| b.iter(|| y.backward(&BackwardOptions::default())));
    group.bench_function("dynamic", |b| {
        let before = settings::scope_auto_forward(Some(true));
        b.iter(|| black_box(chain(&x, &op)));
        settings::scope_auto_forward(before);
    });
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
