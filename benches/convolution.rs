//! Convolutions of known networks: forward, and both gradients. Prints GFLOP/s, and the share of the machine's peak.
//!
//! Multiplications with padding count, and so do the multiplications that Winograd saves.

mod machine;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kinnor::kernels::Epilogue;
use kinnor::kernels::convolution::{Geometry, Spatial, forward, input_gradient, weight_gradient};
use kinnor::kernels::simd::isa;
use kinnor::kernels::threads::{num_threads, set_num_threads};
use machine::{best, peak};

/// Name (says if channels are last); images; channels, maps, groups; length and width of the input and of the kernel;
/// pad, stride, dilation.
type Row = (&'static str, usize, [usize; 3], [usize; 2], [usize; 3]);

const ROWS: [Row; 25] = [
    ("LeNet 1", 64, [1, 16, 1], [28, 5], [0, 1, 1]),
    ("LeNet 2", 64, [16, 16, 1], [12, 5], [0, 1, 1]),
    ("LeNet 2 wide", 64, [16, 32, 1], [12, 5], [0, 1, 1]),
    ("ResNet-20 first", 32, [3, 16, 1], [32, 3], [1, 1, 1]),
    ("ResNet-20 stage 1", 32, [16, 16, 1], [32, 3], [1, 1, 1]),
    ("ResNet-20 into 2", 32, [16, 32, 1], [32, 3], [1, 2, 1]),
    ("ResNet-20 stage 2", 32, [32, 32, 1], [16, 3], [1, 1, 1]),
    ("ResNet-20 into 3", 32, [32, 64, 1], [16, 3], [1, 2, 1]),
    ("ResNet-20 stage 3", 32, [64, 64, 1], [8, 3], [1, 1, 1]),
    ("ResNet-20 shortcut", 32, [16, 32, 1], [32, 1], [0, 2, 1]),
    ("VGG-like 64", 8, [64, 64, 1], [56, 3], [1, 1, 1]),
    ("VGG-like 128", 8, [128, 128, 1], [28, 3], [1, 1, 1]),
    ("VGG-like 256", 8, [256, 256, 1], [14, 3], [1, 1, 1]),
    ("64 to 128, stride 2", 8, [64, 128, 1], [56, 3], [1, 2, 1]),
    ("1x1 64", 8, [64, 64, 1], [56, 1], [0, 1, 1]),
    ("1x1 256 to 64", 8, [256, 64, 1], [28, 1], [0, 1, 1]),
    ("1x1 128 to 512", 8, [128, 512, 1], [28, 1], [0, 1, 1]),
    ("7x7 stride 2", 8, [3, 64, 1], [112, 7], [3, 2, 1]),
    ("dilated", 8, [64, 64, 1], [28, 3], [2, 1, 2]),
    ("4 groups", 8, [64, 64, 4], [28, 3], [1, 1, 1]),
    ("512 on 4x4", 8, [512, 512, 1], [4, 3], [1, 1, 1]),
    ("depthwise 128", 8, [128, 128, 128], [56, 3], [1, 1, 1]),
    ("depthwise 256, stride 2", 8, [256, 256, 256], [28, 3], [1, 2, 1]),
    ("depthwise 128, last", 8, [128, 128, 128], [56, 3], [1, 1, 1]),
    ("depthwise 256/2, last", 8, [256, 256, 256], [28, 3], [1, 2, 1]),
];

/// Returns the geometry of a row.
fn geometry(
    (name, images, [channels, maps, group], [side, kernel], [pad, stride, dilation]): &Row,
) -> Geometry {
    let output = (side + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
    let both = |n: usize| Spatial::from_elem(n, 2);
    Geometry {
        images: *images,
        channels: *channels,
        maps: *maps,
        group: *group,
        input: both(*side),
        kernel: both(*kernel),
        output: both(output),
        pad: both(*pad),
        stride: both(*stride),
        dilation: both(*dilation),
        channel_last: name.ends_with("last"),
    }
}

/// The arrays of one row, and the operations of one sum.
struct Case {
    g: Geometry,
    x: Vec<f32>,
    w: Vec<f32>,
    y: Vec<f32>,
    flops: f64,
}

impl Case {
    fn new(row: &Row) -> Self {
        let g = geometry(row);
        let fill = |n: usize| (0..n).map(|i| (i * 7 % 31) as f32 / 16.0 - 1.0).collect::<Vec<_>>();
        let area = |s: &[usize]| s.iter().product::<usize>();
        let depth = g.channels / g.group * area(&g.kernel);
        let y = g.images * g.maps * area(&g.output);
        Self {
            x: fill(g.images * g.channels * area(&g.input)),
            w: fill(g.maps * depth),
            y: fill(y),
            flops: 2.0 * (y * depth) as f64,
            g,
        }
    }

    /// Computes one of the three sums.
    fn run(&mut self, sum: Sum) {
        let Self { g, x, w, y, .. } = self;
        match sum {
            Sum::Output => forward(g, x, &*w, y, Epilogue::plain(false)),
            Sum::Input => input_gradient(g, y, &*w, x, Epilogue::plain(false)),
            Sum::Weight => weight_gradient(g, x, y, w, false),
        }
        .expect("memory");
        black_box(&self.y);
    }
}

#[derive(Clone, Copy)]
enum Sum {
    Output,
    Input,
    Weight,
}

const SUMS: [(&str, Sum); 3] = [("forward", Sum::Output), ("data", Sum::Input), ("weight", Sum::Weight)];

/// Prints one row for each shape: GFLOP/s of the three sums, and their share of the peak.
fn table(threads: usize) {
    set_num_threads(threads);
    let only = std::env::var("ROW").unwrap_or_default();
    eprintln!("\n{threads} thread(s), {} (best of 0.2 s each)", isa().name());
    for row in ROWS.iter().filter(|r| r.0.contains(&only)) {
        let (mut case, peak) = (Case::new(row), peak());
        let cells = SUMS.map(|(name, sum)| {
            let rate = case.flops / best(|| case.run(sum)) / 1e9;
            format!("{name} {rate:>5.1} = {:>3.0} %", 100.0 * rate / peak)
        });
        eprintln!("{:<24} {} of {peak:.0} GFLOP/s", row.0, cells.join(", "));
    }
}

fn convolutions(c: &mut Criterion) {
    let threads = num_threads();
    table(1);
    if threads > 1 {
        table(threads);
    }
    for row in [&ROWS[1], &ROWS[4], &ROWS[10]] {
        let mut case = Case::new(row);
        let mut group = c.benchmark_group(row.0);
        group.throughput(Throughput::Elements(case.flops as u64));
        for (name, sum) in SUMS {
            group.bench_function(BenchmarkId::from_parameter(name), |bench| bench.iter(|| case.run(sum)));
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .sample_size(20);
    targets = convolutions
}
criterion_main!(benches);
