//! Memory-bound operations, forward and backward, compared with a plain copy.
//!
//! Bytes are counted once for each array that a run reads or writes: the traffic of a perfect kernel.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kinnor::array::Shape;
use kinnor::ops::{self, Call, Kind, Memory, Op, State, Value};

/// About 1 thousand, 64 thousand and 4 million elements, as matrices and as images.
const MATRICES: [[usize; 2]; 3] = [[16, 64], [256, 256], [4096, 1024]];
const IMAGES: [[usize; 4]; 3] = [[2, 8, 8, 8], [4, 16, 32, 32], [16, 64, 64, 64]];

/// Returns numbers from -3 to 3, or from 0.1 to 3.1 if `positive`.
fn numbers(n: usize, positive: bool) -> Vec<f64> {
    let random = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) >> 40;
    let scaled = |i: usize| random(i) as f64 / (1 << 24) as f64;
    (0..n).map(|i| if positive { 3.0 * scaled(i) + 0.1 } else { 6.0 * scaled(i) - 3.0 }).collect()
}

/// An array of any type.
struct Array {
    words: Vec<u64>,
    shape: Shape,
    bytes: usize,
}

impl Array {
    fn new(shape: Shape, width: usize) -> Self {
        let bytes = shape.size() * width;
        Self { words: vec![0; bytes.div_ceil(8)], shape, bytes }
    }

    fn memory(&mut self) -> Memory<'_> {
        Memory { ptr: self.words.as_mut_ptr().cast(), shape: &self.shape }
    }

    fn fill<T: Copy>(mut self, values: impl Iterator<Item = T>) -> Self {
        let first = self.words.as_mut_ptr().cast::<T>();
        // SAFETY: the array has this number of elements of this type.
        values.take(self.shape.size()).enumerate().for_each(|(i, v)| unsafe { first.add(i).write(v) });
        self
    }
}

/// A benchmark: an operation and the shapes of its arrays.
struct Case {
    op: Op,
    shapes: Vec<Shape>,
    double: bool,
    positive: bool,
    /// Upper bound of labels and row indices.
    classes: usize,
}

/// Makes a case.
fn case(name: &str, values: &[Value], shapes: &[&[usize]]) -> Case {
    let present = if name.ends_with("normalization") { 0b111 } else { u64::MAX };
    let op = ops::find(name).expect("is registered").bind(values, present).expect("binds");
    let shapes = shapes.iter().map(|s| Shape::from(*s)).collect();
    Case { op, shapes, double: false, positive: false, classes: 64 }
}

/// Returns the bytes of all arrays.
fn total<'a>(arrays: impl Iterator<Item = &'a Array>) -> u64 {
    arrays.map(|a| a.bytes as u64).sum()
}

/// Measures forward and backward of a case.
fn run(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, case: &Case) {
    let Case { op, shapes, double, positive, classes } = case;
    let width = if *double { 8 } else { 4 };
    let real = |shape: &Shape| {
        let (array, v) = (Array::new(shape.clone(), width), numbers(shape.size(), *positive));
        if *double { array.fill(v.into_iter()) } else { array.fill(v.into_iter().map(|v| v as f32)) }
    };
    let input = |(i, shape): (usize, &Shape)| match op.kind(i) {
        Kind::index => Array::new(shape.clone(), 8).fill((0_i64..).map(|i| i * 7919 % *classes as i64)),
        _ => real(shape),
    };
    let mut x: Vec<_> = shapes.iter().enumerate().map(input).collect();
    let outputs = op.shapes(&shapes.iter().collect::<Vec<_>>()).expect("fits");
    let mut y: Vec<_> = outputs.iter().map(real).collect();
    let mut gy: Vec<_> = outputs.iter().map(real).collect();
    let mut gx: Vec<_> = shapes.iter().map(real).collect();
    let n = shapes.iter().map(Shape::size).max().unwrap_or(0);
    let mut state = State::default();
    group.throughput(Throughput::Bytes(total(x.iter().chain(&y))));
    let xm: Vec<_> = x.iter_mut().map(Array::memory).collect();
    let ym: Vec<_> = y.iter_mut().map(Array::memory).collect();
    let (double, recompute) = (*double, false);
    group.bench_function(BenchmarkId::new(format!("{name} forward"), n), |b| {
        b.iter(|| {
            let call = Call { recompute, ..Call::new(&xm, &ym, &mut state, double) };
            // SAFETY: the arrays have the shapes that the operation expects.
            unsafe { op.forward(call) }
        });
    });
    if !op.facts().has_backward {
        return;
    }
    let wanted: Vec<_> = (0..shapes.len()).map(|i| op.kind(i) != Kind::index).collect();
    let reads = (0..shapes.len()).filter(|i| wanted[*i]).map(|i| op.facts().backward_reads(i));
    let reads = reads.reduce(ops::Reads::or).unwrap_or(ops::Reads::NOTHING);
    let bytes = |shape: &Shape| (shape.size() * width) as u64;
    let read = shapes.iter().enumerate().filter(|(i, _)| reads.input(*i)).map(|(_, s)| bytes(s)).sum::<u64>()
        + outputs.iter().enumerate().filter(|(o, _)| reads.output(*o)).map(|(_, s)| bytes(s)).sum::<u64>();
    group.throughput(Throughput::Bytes(read + total(gy.iter().chain(&gx))));
    let gym: Vec<_> = gy.iter_mut().map(Array::memory).collect();
    let gxm: Vec<_> = gx.iter_mut().zip(wanted).map(|(g, w)| w.then(|| (g.memory(), false))).collect();
    group.bench_function(BenchmarkId::new(format!("{name} backward"), n), |b| {
        b.iter(|| {
            let call = Call { gy: &gym, gx: &gxm, recompute, ..Call::new(&xm, &ym, &mut state, double) };
            // SAFETY: the arrays have the shapes that the operation expects.
            unsafe { op.backward(call) }
        });
    });
}

fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    group.warm_up_time(std::time::Duration::from_millis(60));
    group.measurement_time(std::time::Duration::from_millis(250));
    group
}

fn copy(c: &mut Criterion) {
    let mut group = group(c, "copy");
    for [rows, columns] in MATRICES {
        let (x, mut y) = (vec![1.0_f32; rows * columns], vec![0.0_f32; rows * columns]);
        group.throughput(Throughput::Bytes(8 * x.len() as u64));
        group.bench_function(BenchmarkId::new("one thread", x.len()), |b| b.iter(|| y.copy_from_slice(&x)));
    }
}

fn elementwise(c: &mut Criterion) {
    let mut group = group(c, "elementwise");
    let inplace = [Value::Bool(false)];
    for x in &MATRICES {
        for name in ["add2", "mul2"] {
            run(&mut group, name, &case(name, &inplace, &[x, x]));
            run(&mut group, &format!("{name} of a row"), &case(name, &inplace, &[x, &[1, x[1]]]));
            run(&mut group, &format!("{name} of a column"), &case(name, &inplace, &[x, &[x[0], 1]]));
        }
        run(&mut group, "relu", &case("relu", &inplace, &[x]));
        for name in ["exp", "tanh", "sigmoid", "gelu", "erf", "sin"] {
            run(&mut group, name, &case(name, &[], &[x]));
            if ["exp", "tanh", "sin"].contains(&name) {
                let double = Case { double: true, ..case(name, &[], &[x]) };
                run(&mut group, &format!("{name} in float64"), &double);
            }
        }
        run(&mut group, "log", &Case { positive: true, ..case("log", &[], &[x]) });
        run(&mut group, "softplus", &case("softplus", &[Value::Float(1.0)], &[x]));
        run(&mut group, "pow2", &Case { positive: true, ..case("pow2", &inplace, &[x, x]) });
    }
}

fn reductions(c: &mut Criterion) {
    let mut group = group(c, "reductions");
    for x in &MATRICES {
        for (of, axes) in [("last axis", vec![1]), ("first axis", vec![0]), ("all axes", vec![0, 1])] {
            for name in ["sum", "mean", "max"] {
                let flags = ops::find(name).expect("is registered").spec.args.len() - 1;
                let values = [vec![Value::Ints(axes.clone())], vec![Value::Bool(false); flags]].concat();
                run(&mut group, &format!("{name} of {of}"), &case(name, &values, &[x]));
            }
        }
        let last = [Value::Int(1)];
        run(&mut group, "softmax", &case("softmax", &last, &[x]));
        run(&mut group, "log_softmax", &case("log_softmax", &last, &[x]));
        run(&mut group, "softmax of first axis", &case("softmax", &[Value::Int(0)], &[x]));
        run(&mut group, "softmax_cross_entropy", &case("softmax_cross_entropy", &last, &[x, &[x[0], 1]]));
    }
}

fn normalizations(c: &mut Criterion) {
    let mut group = group(c, "normalizations");
    let (eps, no) = (Value::Float(1e-5), Value::Bool(false));
    for x in &MATRICES {
        let values = [Value::Ints(vec![0]), eps.clone(), no.clone()];
        let param = [1, x[1]];
        run(&mut group, "layer_normalization", &case("layer_normalization", &values, &[x, &param, &param]));
    }
    for x in &IMAGES {
        let param = [1, x[1], 1, 1];
        let values = [
            Value::Ints(vec![1]),
            Value::Float(0.9),
            eps.clone(),
            Value::Bool(true),
            no.clone(),
            Value::None,
        ];
        run(&mut group, "batch_normalization", &case("batch_normalization", &values, &[x, &param, &param]));
        let values = [Value::Int(4), Value::Int(1), Value::Ints(vec![0]), eps.clone(), no.clone()];
        run(&mut group, "group_normalization", &case("group_normalization", &values, &[x, &param, &param]));
    }
}

fn windows_and_moves(c: &mut Criterion) {
    let mut group = group(c, "windows and moves");
    for x in &IMAGES {
        let (two, no) = (Value::Ints(vec![2, 2]), Value::Bool(false));
        let values = [two.clone(), two.clone(), Value::Bool(true), Value::Ints(vec![0, 0]), no.clone()];
        run(&mut group, "max_pooling", &case("max_pooling", &values, &[x]));
        let values = [&values[..], &[Value::Bool(true)]].concat();
        run(&mut group, "average_pooling", &case("average_pooling", &values, &[x]));
        run(&mut group, "transpose to last", &case("transpose", &[Value::Ints(vec![0, 2, 3, 1])], &[x]));
    }
    for x in &MATRICES {
        run(&mut group, "transpose", &case("transpose", &[Value::Ints(vec![1, 0])], &[x]));
        run(&mut group, "dropout", &case("dropout", &[Value::Float(0.5), Value::Int(3)], &[x]));
        run(&mut group, "embed", &Case { classes: 1000, ..case("embed", &[], &[&[x[0]], &[1000, x[1]]]) });
        run(&mut group, "concatenate", &case("concatenate", &[Value::Int(1)], &[x, x]));
    }
}

criterion_group!(benches, copy, elementwise, reductions, normalizations, windows_and_moves);
criterion_main!(benches);
