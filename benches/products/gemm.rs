//! Matrix products compared with the crates `gemm` and `matrixmultiply`, in GFLOP/s and as a share of the machine's
//! peak.
//!
//! With `--features faer`, that crate too: `cargo bench --manifest-path benches/products/Cargo.toml --features faer`.
//!
//! The peak is measured in the same run, by chains of fused multiply-adds in registers, on one thread and on all.

#[path = "../machine/mod.rs"]
mod machine;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kinnor::array::Buffer;
use kinnor::kernels::gemm::{Epilogue, Strided, multiply};
use kinnor::kernels::simd::isa;
use kinnor::kernels::threads::{num_threads, set_num_threads};
use machine::{best_of_each, peak};

/// Rows, columns, terms, and the operand that is stored transposed.
const SHAPES: [(usize, usize, usize, &str); 17] = [
    (64, 64, 64, "NN"),
    (128, 128, 128, "NN"),
    (256, 256, 256, "NN"),
    (512, 512, 512, "NN"),
    (1024, 1024, 1024, "NN"),
    (2048, 2048, 2048, "NN"),
    (1024, 1024, 1024, "NT"),
    (1024, 1024, 1024, "TN"),
    (64, 512, 784, "NN"),
    (64, 512, 784, "NT"),
    (784, 512, 64, "TN"),
    (8, 1024, 4096, "NN"),
    (8, 1024, 4096, "NT"),
    (1024, 1024, 64, "NN"),
    (128, 64, 128, "NT"),
    (1024, 256, 256, "NN"),
    (64, 10, 256, "NN"),
];

/// A matrix, and if it is stored transposed.
struct Matrix {
    buffer: Buffer,
    row: isize,
    col: isize,
}

impl Matrix {
    fn new(rows: usize, cols: usize, transposed: bool) -> Self {
        let buffer = Buffer::new(rows * cols * 4).expect("memory");
        for i in 0..rows * cols {
            // SAFETY: the buffer has this number of elements.
            unsafe {
                buffer.ptr().add(4 * i).cast::<f32>().write_unaligned((i * 7 % 31) as f32 / 16.0 - 1.0);
            };
        }
        let (row, col) = if transposed { (1, rows as isize) } else { (cols as isize, 1) };
        Self { buffer, row, col }
    }

    fn p(&self) -> *mut f32 {
        self.buffer.ptr().cast()
    }

    fn strided(&self) -> Strided<f32> {
        Strided { p: self.p(), row: self.row, col: self.col }
    }
}

fn ours(m: usize, n: usize, k: usize, a: &Matrix, b: &Matrix, c: &Matrix) {
    // SAFETY: the matrices have these shapes.
    unsafe { multiply((m, n, k), a.strided(), b.strided(), None, c.strided(), Epilogue::NONE) };
}

fn gemm_crate(m: usize, n: usize, k: usize, a: &Matrix, b: &Matrix, c: &Matrix) {
    // SAFETY: as above.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.p(),
            c.col,
            c.row,
            false,
            a.p(),
            a.col,
            a.row,
            b.p(),
            b.col,
            b.row,
            1.0,
            1.0,
            false,
            false,
            false,
            if num_threads() > 1 { gemm::Parallelism::Rayon(num_threads()) } else { gemm::Parallelism::None },
        );
    }
}

fn matrixmultiply_crate(m: usize, n: usize, k: usize, a: &Matrix, b: &Matrix, c: &Matrix) {
    // SAFETY: as above.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.p(),
            a.row,
            a.col,
            b.p(),
            b.row,
            b.col,
            0.0,
            c.p(),
            c.row,
            c.col,
        );
    }
}

#[cfg(feature = "faer")]
fn faer_crate(m: usize, n: usize, k: usize, a: &Matrix, b: &Matrix, c: &Matrix) {
    use faer::{Accum, MatMut, MatRef, Par};
    // SAFETY: as above.
    unsafe {
        faer::linalg::matmul::matmul(
            MatMut::from_raw_parts_mut(c.p(), m, n, c.row, c.col),
            Accum::Replace,
            MatRef::from_raw_parts(a.p().cast_const(), m, k, a.row, a.col),
            MatRef::from_raw_parts(b.p().cast_const(), k, n, b.row, b.col),
            1.0_f32,
            if num_threads() > 1 { Par::rayon(num_threads()) } else { Par::Seq },
        );
    }
}

type Multiply = fn(usize, usize, usize, &Matrix, &Matrix, &Matrix);

/// The other crates. `matrixmultiply`, the last one, runs on one thread only.
const CRATES: &[(&str, Multiply)] = &[
    ("gemm", gemm_crate),
    #[cfg(feature = "faer")]
    ("faer", faer_crate),
    ("matrixmultiply", matrixmultiply_crate),
];

/// Prints one row for each shape: GFLOP/s of each crate, ours as a share of the peak and of the best other.
fn table(threads: usize, crates: &[(&str, Multiply)]) {
    set_num_threads(threads);
    let peak = peak();
    eprintln!("\n{threads} thread(s), {}, peak {peak:.0} GFLOP/s (best of 0.2 s each)", isa().name());
    let only = std::env::var("ROW").unwrap_or_default();
    for (m, n, k, kind) in SHAPES {
        if !format!("{m}x{n}x{k} {kind}").contains(&only) {
            continue;
        }
        let (a, b) = (Matrix::new(m, k, kind.starts_with('T')), Matrix::new(k, n, kind.ends_with('T')));
        let c = Matrix::new(m, n, false);
        let all = [ours as Multiply].into_iter().chain(crates.iter().map(|(_, f)| *f));
        let mut calls: Vec<Box<dyn FnMut() + '_>> = Vec::new();
        for f in all {
            let (a, b, c) = (&a, &b, &c);
            calls.push(Box::new(move || f(m, n, k, a, b, c)));
        }
        let rates: Vec<f64> =
            best_of_each(&mut calls).iter().map(|s| 2.0 * (m * n * k) as f64 / s / 1e9).collect();
        let (ours, others) = (rates[0], &rates[1..]);
        let best_other = others.iter().copied().fold(f64::NAN, f64::max);
        let list: Vec<_> = crates.iter().zip(others).map(|((name, _), r)| format!("{name} {r:.0}")).collect();
        eprintln!(
            "{:<18} ours {ours:>4.0} = {:>3.0} % of peak, {:.2} of the best other ({})",
            format!("{m}x{n}x{k} {kind}"),
            100.0 * ours / peak,
            ours / best_other,
            list.join(", ")
        );
    }
}

fn products(c: &mut Criterion) {
    let threads = num_threads();
    table(1, CRATES);
    if threads > 1 {
        table(threads, &CRATES[..CRATES.len() - 1]);
    }
    set_num_threads(1);
    for (m, n, k, kind) in [SHAPES[0], SHAPES[2], SHAPES[4], SHAPES[9]] {
        let (a, b) = (Matrix::new(m, k, kind.starts_with('T')), Matrix::new(k, n, kind.ends_with('T')));
        let out = Matrix::new(m, n, false);
        let mut group = c.benchmark_group(format!("gemm {m}x{n}x{k} {kind}"));
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        for (name, f) in [("kinnor", ours as Multiply)].iter().chain(CRATES) {
            group.bench_function(BenchmarkId::from_parameter(name), |bench| {
                bench.iter(|| f(m, n, k, &a, &b, &out));
            });
        }
    }
    set_num_threads(threads);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .sample_size(20);
    targets = products
}
criterion_main!(benches);
