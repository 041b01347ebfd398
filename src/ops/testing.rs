//! Tests of an operation without a graph. The kernel is compared with finite differences, and the formula of the
//! gradient with the kernel. Declared reads of gradients are checked by filling everything else with NaN.

use smallvec::SmallVec;

use crate::Result;
use crate::array::{DType, Shape};
use crate::ops::contract::symbol::{Builder, build};
use crate::ops::{Call, Kind, Memory, Op, Reads, State, Sym, Symbols, Value, find};

/// The registered operation of this name with these arguments and all inputs.
pub(crate) fn op(name: &str, values: &[Value]) -> Op {
    find(name).expect("is registered").bind(values, u64::MAX).expect("binds")
}

/// A float64 array. It holds whole numbers if the operation reads or writes indices.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// The shape.
    pub(crate) shape: Shape,
    /// The elements, in row-major order.
    pub(crate) data: Vec<f64>,
}

impl Tensor {
    /// A tensor of these elements. Panics if their number does not fit the shape.
    pub(crate) fn new<const N: usize>(shape: [usize; N], data: &[f64]) -> Self {
        let shape = Shape::from(shape);
        assert_eq!(shape.size(), data.len());
        Self { shape, data: data.to_vec() }
    }

    /// Sample values that are distinct and not close to whole numbers, where functions may have kinks.
    pub(crate) fn sample<const N: usize>(shape: [usize; N], seed: u64) -> Self {
        let shape = Shape::from(shape);
        let mut z = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut next = || {
            z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let v = ((z >> 33) as f64 / (1_u64 << 31) as f64) * 3.0 - 1.5;
            if (v - v.round()).abs() < 0.02 { v + 0.05 } else { v }
        };
        let data = (0..shape.size()).map(|_| next()).collect();
        Self { shape, data }
    }
}

/// The values as whole numbers.
fn index(values: &[f64]) -> Vec<i64> {
    values.iter().map(|v| *v as i64).collect()
}

/// Memory in the type that the kernel expects.
enum Bytes {
    Real(Vec<f64>),
    Whole(Vec<i64>),
}

impl Bytes {
    /// The address of the elements.
    fn ptr(&mut self) -> *mut u8 {
        match self {
            Self::Real(v) => v.as_mut_ptr().cast(),
            Self::Whole(v) => v.as_mut_ptr().cast(),
        }
    }
    /// The elements as `f64`.
    fn real(self) -> Vec<f64> {
        match self {
            Self::Real(v) => v,
            Self::Whole(v) => v.into_iter().map(|v| v as f64).collect(),
        }
    }
}

/// The inputs in the types that the kernel reads.
fn inputs(op: &Op, x: &[Tensor]) -> Vec<Bytes> {
    let as_kind = |(i, x): (usize, &Tensor)| match op.kind(i) {
        Kind::index => Bytes::Whole(index(&x.data)),
        _ => Bytes::Real(x.data.clone()),
    };
    x.iter().enumerate().map(as_kind).collect()
}

/// Memory for output `o`, filled with NaN or an invalid number.
fn output(op: &Op, o: usize, n: usize) -> Bytes {
    match op.output(o) {
        Some(DType::I64) => Bytes::Whole(vec![i64::MIN; n]),
        None => Bytes::Real(vec![f64::NAN; n]),
        Some(other) => panic!("the test bed has no {other} outputs"),
    }
}

/// Runs the forward kernel in float64.
pub(crate) fn forward(op: &Op, x: &[Tensor], state: &mut State, recompute: bool) -> Result<Vec<Tensor>> {
    let shapes: Vec<_> = x.iter().map(|x| &x.shape).collect();
    let shapes = match op.facts().shaped_by {
        Some(by) => op.shapes_by(&shapes, Some(&x[by].data))?,
        None => op.shapes(&shapes)?,
    };
    let mut xb = inputs(op, x);
    let mut yb: Vec<_> = shapes.iter().enumerate().map(|(o, s)| output(op, o, s.size())).collect();
    let xm: Vec<_> = xb.iter_mut().zip(x).map(|(b, x)| Memory { ptr: b.ptr(), shape: &x.shape }).collect();
    let ym: Vec<_> = yb.iter_mut().zip(&shapes).map(|(b, s)| Memory { ptr: b.ptr(), shape: s }).collect();
    let call = Call { recompute, ..Call::new(&xm, &ym, state, true) };
    // SAFETY: the arrays were made for this operation and have its shapes.
    unsafe { op.forward(call) }?;
    Ok(shapes.iter().zip(yb).map(|(s, b)| Tensor { shape: s.clone(), data: b.real() }).collect())
}

/// Runs the backward kernel in float64 for the `wanted` inputs, adding to `base`.
///
/// Values that `reads` does not name are NaN, or an invalid index for whole numbers.
fn backward(
    op: &Op,
    x: &[Tensor],
    y: &[Tensor],
    gy: &[Tensor],
    wanted: &[bool],
    base: Option<f64>,
    state: &mut State,
    reads: Reads,
) -> Vec<Option<Vec<f64>>> {
    let mut xb = inputs(op, x);
    for (_, b) in xb.iter_mut().enumerate().filter(|(i, _)| !reads.input(*i)) {
        match b {
            Bytes::Real(v) => v.fill(f64::NAN),
            Bytes::Whole(v) => v.fill(i64::MIN),
        }
    }
    let mut yb: Vec<_> = y
        .iter()
        .enumerate()
        .map(|(o, y)| match (op.output(o), reads.output(o)) {
            (None, true) => Bytes::Real(y.data.clone()),
            (None, false) => Bytes::Real(vec![f64::NAN; y.data.len()]),
            (Some(_), true) => Bytes::Whole(index(&y.data)),
            (Some(_), false) => Bytes::Whole(vec![i64::MIN; y.data.len()]),
        })
        .collect();
    let mut gyb: Vec<_> = gy.iter().map(|g| g.data.clone()).collect();
    let mut gxb: Vec<_> = x.iter().map(|x| vec![base.unwrap_or(f64::NAN); x.data.len()]).collect();
    let xm: Vec<_> = xb.iter_mut().zip(x).map(|(b, x)| Memory { ptr: b.ptr(), shape: &x.shape }).collect();
    let ym: Vec<_> = yb.iter_mut().zip(y).map(|(b, y)| Memory { ptr: b.ptr(), shape: &y.shape }).collect();
    let gym: Vec<_> =
        gyb.iter_mut().zip(y).map(|(b, y)| Memory { ptr: b.as_mut_ptr().cast(), shape: &y.shape }).collect();
    let gxm: Vec<_> = gxb
        .iter_mut()
        .zip(x)
        .zip(wanted)
        .map(|((b, x), w)| {
            w.then(|| (Memory { ptr: b.as_mut_ptr().cast(), shape: &x.shape }, base.is_some()))
        })
        .collect();
    let call = Call { gy: &gym, gx: &gxm, ..Call::new(&xm, &ym, state, true) };
    // SAFETY: the arrays were made for this operation and have its shapes.
    unsafe { op.backward(call) }.expect("backward runs");
    gxb.into_iter().zip(wanted).map(|(g, w)| w.then_some(g)).collect()
}

/// A symbol context that runs every function immediately: its symbols are arrays.
pub(crate) struct Eager(pub(crate) Vec<Tensor>);

impl Builder for Eager {
    fn apply(&mut self, op: Op, x: &[u32]) -> Result<SmallVec<[u32; 1]>> {
        let x: Vec<_> = x.iter().map(|x| self.0[*x as usize].clone()).collect();
        let y = forward(&op, &x, &mut State::default(), false)?;
        let first = self.0.len() as u32;
        let n = y.len() as u32;
        self.0.extend(y);
        Ok((first..first + n).collect())
    }
    fn shape(&self, v: u32) -> Shape {
        self.0[v as usize].shape.clone()
    }
}

/// The gradients of an operation by its backward kernel, with arrays that it must not read made wild.
fn gradient(
    op: &Op,
    x: &[Tensor],
    y: &[Tensor],
    gy: &[Tensor],
    wanted: &[bool],
    reads: Reads,
) -> Vec<Option<Vec<f64>>> {
    let index = |i| op.kind(i).is_whole();
    let wild = |t: &Tensor, with: f64| Tensor { shape: t.shape.clone(), data: vec![with; t.data.len()] };
    let mut eager = Eager(Vec::new());
    let mut add = |t: Tensor| {
        eager.0.push(t);
        Sym::Node(eager.0.len() as u32 - 1)
    };
    let xs: Vec<_> = x
        .iter()
        .enumerate()
        .map(|(i, t)| match (reads.input(i), index(i)) {
            (true, _) => add(t.clone()),
            (false, true) => add(wild(t, f64::NEG_INFINITY)),
            (false, false) => add(wild(t, f64::NAN)),
        })
        .collect();
    let ys: Vec<_> = y
        .iter()
        .enumerate()
        .map(|(o, t)| add(if reads.output(o) { t.clone() } else { wild(t, f64::NAN) }))
        .collect();
    let gys: Vec<_> = gy.iter().cloned().map(&mut add).collect();
    let symbols = Symbols::new(&xs, &ys, &gys, wanted);
    let found = build(&mut eager, || {
        let found = op.gradient(symbols)?;
        let shaped = found.into_iter().zip(x).map(|(g, x)| g.map(|g| g.node(&x.shape)));
        crate::Result::Ok(shaped.collect::<Vec<_>>())
    });
    let found = found.and_then(|g| g).expect("the graph-form gradient builds");
    let values = |(g, x): (Option<u32>, &Tensor)| match g {
        Some(g) => {
            assert_eq!(eager.0[g as usize].shape, x.shape, "shape of a graph-form gradient");
            eager.0[g as usize].data.clone()
        }
        None => vec![0.0; x.data.len()],
    };
    let mut all: Vec<_> = found.into_iter().zip(x).map(values).map(Some).collect();
    all.resize(x.len(), None);
    all.into_iter().zip(wanted).map(|(g, w)| w.then(|| g.unwrap_or_default())).collect()
}

/// Checks that numbers agree within a tolerance. `what` names them in messages.
#[track_caller]
fn close(what: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: number of elements");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let same = (g - e).abs() <= tolerance * (1.0 + e.abs()) || (g.is_nan() && e.is_nan()) || g == e;
        assert!(same, "{what}: element {i} is {g}, expected {e}\n got {got:?}\n expected {expected:?}");
    }
}

/// Checks the outputs of `op` on `x` against `expected`.
#[track_caller]
pub(crate) fn check_forward(op: &Op, x: &[Tensor], expected: &[Tensor]) {
    let y = forward(op, x, &mut State::default(), false).expect("forward runs");
    assert_eq!(y.len(), expected.len(), "number of outputs");
    for (y, e) in y.iter().zip(expected) {
        assert_eq!(y.shape, e.shape, "shape of an output");
        close("forward", &y.data, &e.data, 1e-9);
    }
}

/// Checks every gradient of `op` at `x`: the kernel against finite differences (writing and adding, one input at a time
/// and together), the formula against the kernel, and the declared reads.
///
/// `through` says for which inputs the derivative is the true one (straight-through gradients are not).
#[track_caller]
pub(crate) fn check_gradient(op: &Op, x: &[Tensor], through: &[bool]) {
    let mut state = State::default();
    let y = forward(op, x, &mut state, false).expect("forward runs");
    let gy: Vec<_> = y
        .iter()
        .enumerate()
        .map(|(o, y)| {
            let real = op.output(o).is_none();
            let data =
                (0..y.data.len()).map(|i| if real { ((i * 7 + o * 3) % 11) as f64 / 5.0 - 1.0 } else { 0.0 });
            Tensor { shape: y.shape.clone(), data: data.collect() }
        })
        .collect();
    let all: Vec<bool> = (0..x.len()).map(|i| !op.kind(i).is_whole()).collect();
    let loss = |x: &[Tensor]| -> f64 {
        let y = forward(op, x, &mut State::default(), false).expect("forward runs");
        y.iter().zip(&gy).flat_map(|(y, g)| y.data.iter().zip(&g.data)).map(|(y, g)| y * g).sum()
    };
    let reads = (0..x.len()).filter(|i| all[*i]).fold(Reads::NOTHING, |r, i| r.or(op.facts().reads(i)));
    let together = op.facts().has_backward.then(|| backward(op, x, &y, &gy, &all, None, &mut state, reads));
    for i in (0..x.len()).filter(|i| all[*i]) {
        // An input without a true derivative is not perturbed: a changed mask may change shapes.
        let mut differences = vec![0.0; if through[i] { x[i].data.len() } else { 0 }];
        for (k, d) in differences.iter_mut().enumerate() {
            let at = |step: f64| {
                let mut moved = x.to_vec();
                moved[i].data[k] += step;
                loss(&moved)
            };
            *d = (at(1e-6) - at(-1e-6)) / 2e-6;
        }
        let mut alone = vec![false; x.len()];
        alone[i] = true;
        let graph =
            gradient(op, x, &y, &gy, &alone, op.facts().symbol_reads(i))[i].clone().unwrap_or_default();
        if through[i] {
            close(
                &format!("graph-form gradient of input {i} against differences"),
                &graph,
                &differences,
                1e-5,
            );
        }
        let Some(together) = &together else { continue };
        let together = together[i].as_deref().unwrap_or_default();
        if through[i] {
            close(&format!("gradient of input {i} against differences"), together, &differences, 1e-5);
        }
        close(&format!("graph-form gradient of input {i} against the kernel"), &graph, together, 1e-9);
        let single = backward(op, x, &y, &gy, &alone, None, &mut state, op.facts().reads(i));
        close(
            &format!("gradient of input {i} alone"),
            single[i].as_deref().unwrap_or_default(),
            together,
            1e-12,
        );
        let added = backward(op, x, &y, &gy, &alone, Some(2.0), &mut state, op.facts().reads(i));
        let added: Vec<_> = added[i].iter().flatten().map(|g| g - 2.0).collect();
        close(&format!("gradient of input {i} added"), &added, together, 1e-9);
    }
}
