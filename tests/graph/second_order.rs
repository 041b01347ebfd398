//! Second derivatives of activations, losses and normalizations as graphs.

use kinnor::array::DType;
use kinnor::graph::settings::{Context, Precision, intern, scope_context};
use kinnor::graph::{ForwardOptions, Variable, apply, grad};
use kinnor::ops::Value;

/// A function, its arguments, its inputs, and the number of inputs to differentiate by.
type Case<'a> = (&'a str, &'a [Value], &'a [Variable], usize);

/// Returns a leaf with these values.
fn leaf(shape: &[usize], values: &[f64]) -> Variable {
    let v = Variable::new(shape.to_vec()).expect("fits").with_need_grad(true);
    v.data().cast(DType::F64).expect("is there");
    v.data().copy_from_slice(values).expect("fits");
    v
}

/// Returns distinct values between -1.5 and 1.5.
fn sample(shape: &[usize], seed: usize) -> Variable {
    let n = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|i| ((i * 37 + seed * 61) % 101) as f64 * 0.03 - 1.49).collect();
    leaf(shape, &values)
}

/// Returns the values of a variable.
fn values(v: &Variable) -> Vec<f64> {
    v.data().to_vec().expect("is readable")
}

/// Runs forward.
fn run(y: &Variable) {
    y.forward(&ForwardOptions::default()).expect("runs");
}

/// Returns the gradients of a weighted sum of the outputs by the first `n` inputs.
fn gradients(name: &str, arguments: &[Value], x: &[Variable], n: usize) -> Vec<Variable> {
    let inputs: Vec<_> = x.iter().collect();
    let y = apply(name, &inputs, arguments).expect("builds");
    let seeds: Vec<_> = y.iter().enumerate().map(|(o, y)| sample(&y.shape(), o + 7)).collect();
    let y: Vec<_> = y.iter().collect();
    grad(&y, &inputs[..n], &seeds).expect("builds").into_iter().flatten().collect()
}

/// Compares second derivatives with finite differences of first derivatives, in float64.
fn check(&(name, arguments, x, n): &Case<'_>) {
    let first = gradients(name, arguments, x, n);
    assert_eq!(first.len(), n, "{name}");
    let seeds: Vec<_> = first.iter().enumerate().map(|(o, g)| sample(&g.shape(), o + 3)).collect();
    let inputs: Vec<_> = x[..n].iter().collect();
    let second = grad(&first.iter().collect::<Vec<_>>(), &inputs, &seeds).expect("builds");
    let loss = || -> f64 {
        first.iter().for_each(run);
        first
            .iter()
            .zip(&seeds)
            .flat_map(|(g, s)| values(g).into_iter().zip(values(s)))
            .map(|(g, s)| g * s)
            .sum()
    };
    for (i, (x, second)) in inputs.iter().zip(&second).enumerate() {
        let got = second.as_ref().map_or_else(
            || vec![0.0; values(x).len()],
            |second| {
                run(second);
                values(second)
            },
        );
        let start = values(x);
        for k in 0..start.len() {
            let at = |step: f64| {
                let mut moved = start.clone();
                moved[k] += step;
                x.data().copy_from_slice(&moved).expect("fits");
                loss()
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            x.data().copy_from_slice(&start).expect("fits");
            let same = (got[k] - difference).abs() <= 1e-5 * (1.0 + difference.abs());
            assert!(same, "{name}, input {i}, element {k}: {} against {difference}", got[k]);
        }
    }
}

/// Runs `f` in a context of double precision.
fn in_double(f: impl FnOnce()) {
    let double = Context { compute: Precision::Double, ..Context::default() };
    scope_context(Some(intern(&double).expect("there are few")));
    f();
    scope_context(None);
}

#[test]
fn second_derivatives_match_differences() {
    let x = || sample(&[2, 3, 4], 1);
    let channel = |seed| sample(&[1, 3, 1], seed);
    let positive = |seed| leaf(&[1, 3, 1], &[0.5 + seed, 1.0, 2.0]);
    let labels = || leaf(&[2, 1, 4], &[0.0, 2.0, -1.0, 1.0, 1.0, 0.0, 2.0, 0.0]);
    let probabilities = |seed: usize| {
        let x = sample(&[2, 3], seed);
        leaf(&[2, 3], &values(&x).iter().map(|v| 0.5 + v / 4.0).collect::<Vec<_>>())
    };
    let normalized = [x(), channel(2), channel(3)];
    let with_running = [x(), channel(2), channel(3), channel(4), positive(0.0)];
    let sample_wise = [x(), sample(&[1, 3, 4], 2), sample(&[1, 3, 4], 3)];
    let (axis, stat) = ([Value::Int(1)], Value::Bool(true));
    let eval = [Value::Int(1), Value::Float(0.9), Value::Float(1e-3), Value::Bool(false)];
    let with_stat = [Value::Int(1), Value::Float(0.9), Value::Float(1e-3), stat.clone(), stat];
    let unary = [
        "swish",
        "gelu",
        "mish",
        "softplus",
        "log_sigmoid",
        "softsign",
        "tanh_shrink",
        "sinc",
        "elu",
        "selu",
    ];
    in_double(|| {
        for name in unary {
            check(&(name, &[], &[x()], 1));
        }
        let cases: [Case<'_>; 16] = [
            ("prelu", &[], &[x(), leaf(&[3], &[0.1, 0.2, -0.3])], 2),
            ("celu", &[], &[x()], 1),
            ("softmax", &axis, &[x()], 1),
            ("log_softmax", &axis, &[x()], 1),
            ("softmax_cross_entropy", &axis, &[x(), labels()], 1),
            ("categorical_cross_entropy", &[], &[probabilities(1), leaf(&[2, 1], &[1.0, -1.0])], 1),
            ("sigmoid_cross_entropy", &[], &[probabilities(1), probabilities(2)], 2),
            ("binary_cross_entropy", &[], &[probabilities(1), probabilities(2)], 2),
            ("squared_error", &[], &[x(), sample(&[2, 3, 4], 5)], 2),
            ("kl_multinomial", &[], &[probabilities(1), probabilities(2)], 2),
            ("batch_normalization", &[], &with_running[..4], 3),
            ("batch_normalization", &with_stat, &with_running[..4], 3),
            ("batch_normalization", &eval, &with_running, 5),
            ("layer_normalization", &[], &sample_wise, 3),
            ("instance_normalization", &[], &normalized, 3),
            ("weight_normalization", &[], &[sample(&[3, 4], 1), sample(&[3], 2)], 2),
        ];
        cases.iter().for_each(check);
        check(&("norm_normalization", &[], &[x()], 1));
        check(&("group_normalization", &[Value::Int(3)], &normalized, 3));
    });
}

#[test]
fn derivative_graphs_are_finite_far_out_and_at_kinks() {
    let far = [0.0, 1e4, -1e4, 1.0, -1.0, 2.5, -2.5, 3.0, -3.0, 6.0, 1e-5, 88.0, -104.0];
    let names = "sigmoid tanh swish relu leaky_relu elu selu gelu mish relu6 hard_sigmoid hard_tanh hard_swish \
                 log_sigmoid softplus softsign tanh_shrink sinc softmax log_softmax";
    for name in names.split(' ') {
        let x = leaf(&[far.len()], &far);
        let first = gradients(name, &[], std::slice::from_ref(&x), 1).remove(0);
        let second = grad(&[&first], &[&x], &[sample(&[far.len()], 2)]).expect("builds").remove(0);
        for derivative in std::iter::once(first).chain(second) {
            run(&derivative);
            let found = values(&derivative);
            assert!(found.iter().all(|v| v.is_finite()), "{name} at {far:?}: {found:?}");
        }
    }
}
