//! Test parameters, and the expected result of steps on them: from plain formulas, and from NNabla.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Existing, Hooks, SOLVERS, Solver, Source, find};
use crate::array::{Access, DType, Shape, Storage, convert};
use crate::ops::Value;

/// A variable without a graph.
#[derive(Clone)]
pub(super) struct Leaf {
    /// The shape.
    pub(super) shape: Shape,
    /// The current data, which tests may replace.
    pub(super) data: Arc<Mutex<Arc<Storage>>>,
    /// The gradient.
    pub(super) grad: Arc<Storage>,
}

impl Leaf {
    /// A leaf with these values in this type, and a gradient of the same size.
    pub(super) fn new(dtype: DType, w: &[f64]) -> Self {
        let data = Storage::new(w.len());
        write(&data, dtype, w);
        let grad = Storage::new(w.len());
        Self { shape: Shape::from([w.len()]), data: Arc::new(Mutex::new(data)), grad }
    }

    /// The current values.
    pub(super) fn values(&self) -> Vec<f64> {
        read(&self.data())
    }
}

impl Source for Leaf {
    fn shape(&self) -> Shape {
        self.shape.clone()
    }
    fn data(&self) -> Arc<Storage> {
        Arc::clone(&self.data.lock())
    }
    fn grad(&self) -> Arc<Storage> {
        Arc::clone(&self.grad)
    }
}

/// Writes values as `dtype`.
pub(super) fn write(storage: &Storage, dtype: DType, values: &[f64]) {
    let target = storage.access(dtype, Access::Write).expect("there is memory");
    // SAFETY: both have as many elements of their types.
    unsafe { convert(values.as_ptr().cast(), DType::F64, target, dtype, values.len()) };
}

/// Reads the values as `f64`.
pub(super) fn read(storage: &Storage) -> Vec<f64> {
    let source = storage.access(DType::F64, Access::Read).expect("has values");
    let mut values = vec![0.0; storage.len()];
    // SAFETY: both have as many elements of one type.
    unsafe { convert(source, DType::F64, values.as_mut_ptr().cast(), DType::F64, values.len()) };
    values
}

/// A solver with these arguments and parameters.
pub(super) fn solver(name: &str, values: &[Value], parameters: &[(&str, &Leaf)]) -> Solver<Leaf> {
    let solver = find(name).expect("is registered").solver(values).expect("binds");
    let parameters = parameters.iter().map(|(name, leaf)| ((*name).to_string(), (*leaf).clone()));
    solver.set_parameters(parameters.collect(), Existing::Removed).expect("nothing to fit");
    solver
}

/// The initial values.
const W: [f64; 5] = [0.5, -1.5, 2.0, -0.25, 1.0];

/// The gradient of step `k`.
fn gradient(k: usize) -> [f64; 5] {
    let scale = (1 + k) as f64 * if k / 2 % 2 == 1 { -1.0 } else { 1.0 };
    [0.3, -0.2, 0.1, 0.7, -0.4].map(|g| g * scale)
}

/// Five steps with a changing learning rate and, if `decays`, weight decay in all but one.
fn run(name: &str, values: &[Value], dtype: DType, decays: bool) -> Vec<f64> {
    let leaf = Leaf::new(dtype, &W);
    let solver = solver(name, values, &[("w", &leaf)]);
    for k in 0..5 {
        write(&leaf.grad, dtype, &gradient(k));
        if k == 2 {
            solver.set_learning_rate(0.03).expect("is a rate");
        }
        if decays && k != 3 {
            solver.weight_decay(0.1, Hooks::none()).expect("is a rate");
        }
        solver.update(Hooks::none()).expect("fits");
    }
    leaf.values()
}

/// Checks that values agree within a tolerance.
fn close(name: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (got - expected).abs() <= tolerance * expected.abs().max(1.0),
            "{name}: {got} is not {expected}"
        );
    }
}

/// Inputs of a plain formula: step, learning rate, its ratio to the initial one, gradients.
struct At<'a> {
    /// The number of the step, from 1.
    t: i32,
    /// The learning rate.
    lr: f64,
    /// The ratio of the learning rate to the initial one.
    schedule: f64,
    /// The gradients of the five elements.
    g: &'a [f64; 5],
}

/// A reference step: changes values and states.
type Plain = fn(At<'_>, &mut [f64; 5], &mut [[f64; 5]; 3]);

/// A plain formula for one element.
macro_rules! each {
    (|$at:ident, $g:ident, $w:ident, $s:ident, $t:ident, $u:ident| $body:expr) => {
        |$at, w, s| {
            let [s, t, u] = s;
            for i in 0..5 {
                let ($g, $w, $s, $t, $u) = ($at.g[i], &mut w[i], &mut s[i], &mut t[i], &mut u[i]);
                $body;
            }
        }
    };
}

/// The default of `beta1`.
const B1: f64 = 0.9;
/// The default of `beta2`.
const B2: f64 = 0.999;

/// The learning rate with Adam's bias corrections.
fn alpha(at: &At<'_>) -> f64 {
    at.lr * (1.0 - B2.powi(at.t)).sqrt() / (1.0 - B1.powi(at.t))
}

/// Updates the mean and the mean of squares, as in Adam.
fn moments(g: f64, m: &mut f64, v: &mut f64) {
    *m = B1 * *m + (1.0 - B1) * g;
    *v = B2 * *v + (1.0 - B2) * g * g;
}

/// The Euclidean norm.
fn norm(x: &[f64; 5]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The reference step of a solver.
#[allow(clippy::too_many_lines)] // a table
fn plain(name: &str) -> Plain {
    match name {
        "Sgd" => each!(|at, g, w, _s, _t, _u| *w -= at.lr * g),
        "SgdW" => each!(|at, g, w, m, _t, _u| {
            *m = 0.9 * *m + at.lr * g;
            *w = *w - *m - at.schedule * 1e-4 * *w;
        }),
        "Momentum" => each!(|at, g, w, m, _t, _u| {
            *m = 0.9 * *m + at.lr * g;
            *w -= *m;
        }),
        "Lars" => |at, w, [v, ..]| {
            let lr = at.lr * 0.001 * norm(w) / norm(at.g);
            for i in 0..5 {
                v[i] = 0.9 * v[i] + lr * at.g[i];
                w[i] -= v[i];
            }
        },
        "Nesterov" => each!(|at, g, w, m, _t, _u| {
            let last = *m;
            *m = 0.9 * last - at.lr * g;
            *w += -0.9 * last + 1.9 * *m;
        }),
        "Adadelta" => each!(|at, g, w, e, f, _u| {
            *e = 0.95 * *e + 0.05 * g * g;
            let d = g * (*f + 1e-6).sqrt() / (*e + 1e-6).sqrt();
            *f = 0.95 * *f + 0.05 * d * d;
            *w -= at.lr * d;
        }),
        "Adagrad" => each!(|at, g, w, v, _t, _u| {
            *v += g * g;
            *w -= at.lr * g / (v.sqrt() + 1e-8);
        }),
        "AdaBelief" => each!(|at, g, w, m, s, _u| {
            *m = B1 * *m + (1.0 - B1) * g;
            *s = B2 * *s + (1.0 - B2) * (g - *m) * (g - *m) + 1e-8;
            let (m_hat, s_hat) = (*m / (1.0 - B1.powi(at.t)), *s / (1.0 - B2.powi(at.t)));
            *w -= at.lr * m_hat / (s_hat.sqrt() + 1e-8);
        }),
        "RMSprop" => each!(|at, g, w, v, _t, _u| {
            *v = 0.9 * *v + 0.1 * g * g;
            *w -= at.lr * g / (v.sqrt() + 1e-8);
        }),
        "RMSpropGraves" => each!(|at, g, w, n, a, d| {
            *n = 0.95 * *n + 0.05 * g * g;
            *a = 0.95 * *a + 0.05 * g;
            *d = 0.9 * *d - at.lr * g / (*n - *a * *a + 1e-4).sqrt();
            *w += *d;
        }),
        "Adam" => each!(|at, g, w, m, v, _u| {
            moments(g, m, v);
            *w -= alpha(&at) * *m / (v.sqrt() + 1e-8);
        }),
        "AdamW" => each!(|at, g, w, m, v, _u| {
            moments(g, m, v);
            *w -= alpha(&at) * *m / (v.sqrt() + 1e-8) + at.schedule * 1e-4 * *w;
        }),
        "AdaBound" => each!(|at, g, w, m, v, _u| {
            moments(g, m, v);
            let (last, at_t) = (0.1 * at.schedule, 0.001 * f64::from(at.t));
            let (lower, upper) = (last * (1.0 - 1.0 / (at_t + 1.0)), last * (1.0 + 1.0 / at_t));
            *w -= (alpha(&at) / (v.sqrt() + 1e-8)).clamp(lower, upper) * *m;
        }),
        "Adamax" => each!(|at, g, w, m, u, _u| {
            *m = B1 * *m + (1.0 - B1) * g;
            *u = (B2 * *u).max(g.abs());
            *w -= at.lr / (1.0 - B1.powi(at.t)) * *m / (*u + 1e-8);
        }),
        "AMSGRAD" => each!(|at, g, w, m, v, top| {
            moments(g, m, v);
            *top = v.max(*top);
            *w -= at.lr * *m / (top.sqrt() + 1e-8);
        }),
        "AMSBound" => each!(|at, g, w, m, v, top| {
            moments(g, m, v);
            *top = v.max(*top);
            let (last, at_t) = (0.1 * at.schedule, 0.001 * f64::from(at.t));
            let (lower, upper) = (last * (1.0 - 1.0 / (at_t + 1.0)), last * (1.0 + 1.0 / at_t));
            *w -= (at.lr / (top.sqrt() + 1e-8)).clamp(lower, upper) * *m;
        }),
        "Lamb" => |at, w, [m, v, _]| {
            let mut r = [0.0; 5];
            for i in 0..5 {
                moments(at.g[i], &mut m[i], &mut v[i]);
                r[i] = m[i] / (v[i].sqrt() + 1e-6);
            }
            let rate = at.lr * norm(w).min(10.0) / norm(&r);
            for i in 0..5 {
                w[i] -= rate * r[i];
            }
        },
        "Lion" => each!(|at, g, w, m, _t, _u| {
            *w -= at.lr * (0.9 * *m + 0.1 * g).signum();
            *m = 0.99 * *m + 0.01 * g;
        }),
        _ => panic!("{name}: write its plain formula here"),
    }
}

#[test]
fn steps_are_those_of_a_plain_formula() {
    for entry in SOLVERS {
        let name = entry.spec.name;
        let Some(Value::Float(first)) = entry.spec.args[0].default.map(|d| d()) else {
            panic!("{name}: no rate")
        };
        let (mut w, mut s) = (W, [[0.0; 5]; 3]);
        for k in 0..5 {
            let lr = if k < 2 { first } else { 0.03 };
            let at = At { t: k as i32 + 1, lr, schedule: lr / first, g: &gradient(k) };
            plain(name)(at, &mut w, &mut s);
        }
        close(name, &run(name, &[], DType::F64, false), &w, 1e-13);
        close(name, &run(name, &[], DType::F32, false), &w, 2e-6);
    }
}

#[test]
#[allow(clippy::unreadable_literal)] // figures as printed
fn steps_are_those_of_nnabla() {
    use Value::{Bool as B, Float as F};
    // Computed by NNabla 1.39 in single precision.
    let rows: &[(&str, &[Value], [f64; 5])] = &[
        ("Sgd", &[F(0.02)], [0.4949492, -1.485009, 1.980051, -0.2476708, 0.9901294]),
        ("SgdW", &[F(0.02), F(0.8), F(0.05)], [0.2987908, -0.8307492, 1.092041, -0.06971011, 0.5038342]),
        ("Momentum", &[F(0.02), F(0.8)], [0.5187523, -1.485848, 1.964366, -0.1738794, 0.9369203]),
        (
            "Lars",
            &[F(0.02), F(0.8), F(0.4), F(1e-06)],
            [0.4896283, -1.478029, 1.972883, -0.2559178, 0.9923198],
        ),
        ("Lars", &[F(0.02), F(0.8), F(0.4), F(5.0)], [0.5187523, -1.485848, 1.964366, -0.1738794, 0.9369203]),
        ("Nesterov", &[F(0.02), F(0.8)], [0.5099794, -1.47381, 1.951716, -0.1868336, 0.9397752]),
        ("Adadelta", &[F(0.7), F(0.8), F(0.01)], [0.2002762, -1.206675, 1.725845, -0.5848783, 1.295535]),
        ("Adagrad", &[F(0.05), F(0.01)], [0.4319224, -1.426942, 1.915436, -0.3177771, 1.065699]),
        (
            "AdaBelief",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05), B(false), B(false), B(false), B(false)],
            [0.4776026, -1.462476, 1.946177, -0.2738591, 1.007654],
        ),
        (
            "AdaBelief",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05), B(true), B(true), B(false), B(false)],
            [0.4780523, -1.473425, 1.974761, -0.2726989, 1.008665],
        ),
        (
            "AdaBelief",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05), B(false), B(true), B(true), B(true)],
            [0.316313, -0.9379034, 1.247926, -0.1442291, 0.6169044],
        ),
        (
            "AdaBelief",
            &[F(0.02), F(0.8), F(0.999), F(0.01), F(0.05), B(true), B(false), B(false), B(true)],
            [0.5032068, -1.497744, 1.994165, -0.2371823, 0.9894477],
        ),
        ("RMSprop", &[F(0.02), F(0.8), F(0.01)], [0.4735171, -1.460974, 1.931464, -0.274391, 1.019646]),
        (
            "RMSpropGraves",
            &[F(0.02), F(0.8), F(0.7), F(0.01)],
            [0.4308753, -1.402932, 1.848026, -0.331683, 1.045593],
        ),
        ("Adam", &[F(0.02), F(0.8), F(0.9), F(0.01)], [0.4756714, -1.460836, 1.936817, -0.2699704, 1.012934]),
        (
            "AdamW",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05)],
            [0.2609996, -0.8029505, 1.075183, -0.1457786, 0.5513304],
        ),
        (
            "AdaBound",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05), F(0.5)],
            [0.4823065, -1.471005, 1.957269, -0.2590064, 1.002387],
        ),
        (
            "Adamax",
            &[F(0.02), F(0.8), F(0.9), F(0.01)],
            [0.474332, -1.461966, 1.943496, -0.2719602, 1.017244],
        ),
        (
            "AMSGRAD",
            &[F(0.02), F(0.8), F(0.9), F(0.01), B(false)],
            [0.4853793, -1.470817, 1.947433, -0.2600088, 1.003563],
        ),
        (
            "AMSGRAD",
            &[F(0.02), F(0.8), F(0.9), F(0.01), B(true)],
            [0.4756714, -1.460836, 1.937243, -0.2699704, 1.012934],
        ),
        (
            "AMSBound",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05), F(0.001), B(false)],
            [0.4853793, -1.470817, 1.947433, -0.2600088, 1.003563],
        ),
        (
            "AMSBound",
            &[F(0.02), F(0.8), F(0.9), F(0.01), F(0.05), F(0.001), B(true)],
            [0.4756714, -1.460836, 1.937243, -0.2699704, 1.012934],
        ),
        (
            "Lamb",
            &[F(0.02), F(0.8), F(0.9), F(0.3), F(2.0), F(0.01), B(false)],
            [0.4850026, -1.447707, 1.930191, -0.2373553, 0.9584825],
        ),
        (
            "Lamb",
            &[F(0.02), F(0.8), F(0.9), F(0.3), F(10.0), F(0.01), B(true)],
            [0.4810414, -1.433149, 1.909684, -0.2331378, 0.9469072],
        ),
        ("Lion", &[F(0.02), F(0.8), F(0.9)], [0.4851179, -1.475155, 1.970173, -0.2574098, 0.9999376]),
    ];
    for (name, values, expected) in rows {
        close(name, &run(name, values, DType::F32, true), expected, 2e-6);
        close(name, &run(name, values, DType::F64, true), expected, 2e-6);
    }
}
