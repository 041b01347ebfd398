//! Trains a convolutional network on the digits that come with the Python package, and prints the accuracy on
//! held-out ones.
//!
//! Run it with `cargo run --release --example digits`.

use std::error::Error;

use kinnor::Result;
use kinnor::graph::{BackwardOptions, ForwardOptions, NdArray, Variable, apply};
use kinnor::ops::Value;
use kinnor::solvers::{Existing, Hooks, find};
use ndarray::{Array1, Array2, Array4, Axis};

const BATCH: usize = 64;
const EPOCHS: usize = 8;

/// Returns the first output of an operation.
fn one(name: &str, x: &[&Variable], arguments: &[Value]) -> Result<Variable> {
    Ok(apply(name, x, arguments)?.remove(0))
}

/// Returns a parameter with normally distributed values.
fn parameter(shape: &[usize], sigma: f64, seed: i64) -> Result<Variable> {
    let lengths = Value::Ints(shape.iter().map(|n| *n as i64).collect());
    let drawn = one("randn", &[], &[Value::Float(0.0), Value::Float(sigma), lengths, Value::Int(seed)])?;
    drawn.forward(&ForwardOptions::default())?;
    let parameter = Variable::new(shape)?.with_need_grad(true);
    parameter.set_data(&drawn.data())?;
    Ok(parameter)
}

/// The parameters of the network, by name.
struct Net(Vec<(String, Variable)>);

impl Net {
    fn new() -> Result<Self> {
        let all: [(&str, &[usize], f64); 4] = [
            ("conv/W", &[16, 1, 3, 3], 0.3),
            ("conv/b", &[16], 0.0),
            ("affine/W", &[256, 10], 0.06),
            ("affine/b", &[10], 0.0),
        ];
        let named = all.iter().zip(313..);
        let named = named
            .map(|((name, shape, sigma), seed)| Ok(((*name).to_string(), parameter(shape, *sigma, seed)?)));
        named.collect::<Result<_>>().map(Self)
    }

    /// Returns scores of the ten digits for a batch of images.
    fn scores(&self, x: &Variable) -> Result<Variable> {
        let [conv_w, conv_b, affine_w, affine_b] = [0, 1, 2, 3].map(|i| &self.0[i].1);
        let pad = Value::Ints(vec![1, 1]);
        let h = one("convolution", &[x, conv_w, conv_b], &[Value::Int(1), pad])?;
        let h = one("max_pooling", &[&one("relu", &[&h], &[])?], &[Value::Ints(vec![2, 2])])?;
        one("affine", &[&h, affine_w, affine_b], &[])
    }
}

/// Returns the images, from 0 (paper) to 1 (ink), and their labels. The file holds two arrays of bytes, uncompressed.
fn digits() -> std::result::Result<(Array4<f32>, Array1<i32>), Box<dyn Error>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/python/kinnor/datasets/digits.npz");
    let bytes = std::fs::read(file)?;
    let starts = bytes.windows(6).enumerate().filter(|(_, magic)| magic == b"\x93NUMPY");
    let arrays = starts.map(|(at, _)| {
        let header = u16::from_le_bytes([bytes[at + 8], bytes[at + 9]]);
        &bytes[at + 10 + usize::from(header)..]
    });
    let [images, labels] = arrays.collect::<Vec<_>>()[..] else { return Err("expected two arrays".into()) };
    let n = 1797;
    let pixels = images[..n * 64].iter().map(|v| f32::from(*v) / 16.0).collect();
    Ok((Array4::from_shape_vec((n, 1, 8, 8), pixels)?, labels[..n].iter().map(|v| i32::from(*v)).collect()))
}

/// Returns the share of images that are classified correctly.
fn accuracy(net: &Net, images: &Array4<f32>, labels: &Array1<i32>) -> Result<f64> {
    let x = Variable::new(images.shape())?;
    x.set_data(&NdArray::from_ndarray(images)?)?;
    let y = net.scores(&x)?;
    y.forward(&ForwardOptions { clear_buffer: true, ..Default::default() })?;
    let scores = y.data().view::<f32>()?;
    let best = |row: &[f32]| (0..10).max_by(|a, b| row[*a].total_cmp(&row[*b]));
    let right =
        scores.chunks(10).zip(labels).filter(|(row, label)| best(row) == usize::try_from(**label).ok());
    Ok(right.count() as f64 / labels.len() as f64)
}

#[allow(clippy::print_stdout)]
fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (images, labels) = digits()?;
    // Hold out every fifth image. Neighbouring images have the same writer.
    let (held_out, mut seen): (Vec<usize>, Vec<usize>) = (0..labels.len()).partition(|i| i % 5 == 0);

    let net = Net::new()?;
    let (x, t) = (Variable::new([BATCH, 1, 8, 8])?, Variable::new([BATCH, 1])?);
    let entropy = one("softmax_cross_entropy", &[&net.scores(&x)?, &t], &[])?;
    let loss = one("mean", &[&entropy], &[])?;
    let solver = find("Adam").ok_or("no such solver")?.solver(&[Value::Float(0.003)])?;
    solver.set_parameters(net.0.clone(), Existing::Removed)?;

    let forward = ForwardOptions { clear_no_need_grad: true, ..Default::default() };
    let backward = BackwardOptions { clear_buffer: true, ..Default::default() };
    let mut random = 1_u64;
    for epoch in 1..=EPOCHS {
        for i in (1..seen.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seen.swap(i, (random >> 33) as usize % (i + 1));
        }
        for batch in seen.chunks_exact(BATCH) {
            x.data().assign(&images.select(Axis(0), batch))?;
            let targets: Array2<i32> = labels.select(Axis(0), batch).insert_axis(Axis(1));
            t.data().assign(&targets)?;
            loss.forward(&forward)?;
            solver.zero_grad()?;
            loss.backward(&backward)?;
            solver.update(Hooks::none())?;
        }
        println!("epoch {epoch}: loss {:.3}", loss.data().to_vec()?[0]);
    }
    let (images, labels) = (images.select(Axis(0), &held_out), labels.select(Axis(0), &held_out));
    println!("accuracy {:.3}", accuracy(&net, &images, &labels)?);
    Ok(())
}
