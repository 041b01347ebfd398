//! Tests of reductions and of running sums along axes.

use super::{Value, each, element, ints, op, refused, run};
use crate::Error;
use crate::ops::Op;
use crate::ops::testing::{Tensor, check_forward, check_gradient};

/// Shapes of test inputs.
const SHAPES: [&[usize]; 7] = [&[], &[1], &[7], &[2, 3, 4], &[3, 1, 5], &[17, 9], &[2, 2, 3, 2]];

/// A tensor of any shape with sample values.
fn tensor(shape: &[usize], seed: u64) -> Tensor {
    let n = shape.iter().product();
    let data = Tensor::sample([256], seed).data.into_iter().cycle().take(n).collect();
    Tensor { shape: shape.into(), data }
}

/// Every choice of axes of an array. Half of the axes are counted from the end.
fn choices(ndim: usize) -> Vec<Option<Vec<i64>>> {
    let some = |bits: usize| {
        let axes = (0..ndim).filter(|a| bits >> a & 1 == 1);
        axes.map(|a| if bits.is_multiple_of(2) { a as i64 } else { a as i64 - ndim as i64 }).rev().collect()
    };
    std::iter::once(None).chain((0..1 << ndim).map(|bits| Some(some(bits)))).collect()
}

/// Groups the elements by the result of a reduction along `axes` that they belong to. Also returns the shape of the
/// results.
fn groups(x: &Tensor, axes: Option<&[i64]>, keepdims: bool) -> (Vec<usize>, Vec<Vec<f64>>) {
    let n = x.shape.ndim() as i64;
    let all: Vec<i64> = (0..n).collect();
    let axes: Vec<usize> = axes.unwrap_or(&all).iter().map(|a| a.rem_euclid(n.max(1)) as usize).collect();
    let dims = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> {
        x.shape.iter().enumerate().map(|(i, d)| if keep(i) { *d } else { 1 }).collect()
    };
    let (kept, folded) = (dims(&|i| !axes.contains(&i)), dims(&|i| axes.contains(&i)));
    let mut found = Vec::new();
    each(&kept, |at| {
        let mut group = Vec::new();
        each(&folded, |within| {
            let place: Vec<usize> = at.iter().zip(within).map(|(a, b)| a + b).collect();
            group.push(element(x, &place));
        });
        found.push(group);
    });
    let shape = if keepdims {
        kept
    } else {
        kept.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect()
    };
    (shape, found)
}

/// The reduction `name` with these arguments.
fn reduction(name: &str, axis: Option<&[i64]>, keepdims: bool) -> Op {
    let axis = axis.map_or(Value::None, ints);
    match name {
        "norm1" => op("norm", &[Value::Float(1.0), axis, Value::Bool(keepdims)]),
        "norm" => op("norm", &[Value::None, axis, Value::Bool(keepdims)]),
        "norm3" => op("norm", &[Value::Float(3.5), axis, Value::Bool(keepdims)]),
        "max" | "min" => op(name, &[axis, Value::Bool(keepdims), Value::Bool(false), Value::Bool(false)]),
        _ => op(name, &[axis, Value::Bool(keepdims)]),
    }
}

/// A reference implementation of a reduction.
type Folded = fn(&[f64]) -> f64;
/// The reductions under test.
const REDUCTIONS: [(&str, Folded); 8] = [
    ("sum", |x| x.iter().sum()),
    ("mean", |x| x.iter().sum::<f64>() / x.len() as f64),
    ("prod", |x| x.iter().product()),
    ("norm1", |x| x.iter().map(|x| x.abs()).sum()),
    ("norm", |x| x.iter().map(|x| x * x).sum::<f64>().sqrt()),
    ("norm3", |x| x.iter().map(|x| x.abs().powf(3.5)).sum::<f64>().powf(1.0 / 3.5)),
    ("max", |x| x.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    ("min", |x| x.iter().copied().fold(f64::INFINITY, f64::min)),
];

#[test]
fn reductions_fold_any_axes() {
    for (name, fold) in REDUCTIONS {
        for shape in SHAPES {
            let x = tensor(shape, 3);
            for (i, axis) in choices(shape.len()).iter().enumerate() {
                let keepdims = i % 2 == 1;
                let (shape, groups) = groups(&x, axis.as_deref(), keepdims);
                let expected = Tensor { shape: shape.into(), data: groups.iter().map(|g| fold(g)).collect() };
                let op = reduction(name, axis.as_deref(), keepdims);
                check_forward(&op, std::slice::from_ref(&x), &[expected]);
                check_gradient(&op, std::slice::from_ref(&x), &[true]);
            }
        }
    }
}

#[test]
fn reductions_of_nothing() {
    let x = Tensor::new([0, 3], &[]);
    let zeros = Tensor::new([3], &[0.0; 3]);
    for (name, value) in [("sum", 0.0), ("prod", 1.0), ("norm", 0.0), ("mean", f64::NAN)] {
        let op = reduction(name, Some(&[0]), false);
        check_forward(&op, &[x.clone()], &[Tensor { data: vec![value; 3], ..zeros.clone() }]);
        check_gradient(&op, &[x.clone()], &[true]);
        check_gradient(&reduction(name, Some(&[1]), false), &[x.clone()], &[true]);
    }
    for name in ["max", "min"] {
        assert!(matches!(refused(&reduction(name, Some(&[0]), false), &[x.clone()]), Error::Shape { .. }));
        check_gradient(&reduction(name, Some(&[1]), true), &[x.clone()], &[true]);
    }
}

#[test]
fn products_differentiate_through_zeros() {
    for zeros in 0..4 {
        let mut x = tensor(&[3, 4], 5);
        (0..zeros).for_each(|i| x.data[4 + 2 * i % 4] = 0.0);
        check_gradient(&reduction("prod", Some(&[1]), false), &[x.clone()], &[true]);
        check_gradient(&reduction("prod", None, false), &[x], &[true]);
    }
}

#[test]
fn the_norm_of_zeros_has_a_gradient_of_zero() {
    for name in ["norm", "norm3"] {
        let x = Tensor::new([2, 2], &[0.0, 0.0, 3.0, -4.0]);
        check_gradient(&reduction(name, Some(&[1]), false), &[x], &[false]);
    }
    let op = op("norm", &[Value::Float(0.5), Value::None, Value::Bool(false)]);
    assert!(matches!(refused(&op, &[tensor(&[2], 1)]), Error::Argument { .. }));
}

#[test]
fn max_and_min_return_the_index_of_the_first_extreme() {
    let x = Tensor::new([2, 2, 3], &[1.0, 5.0, 5.0, 0.0, 5.0, -1.0, f64::NAN, 2.0, 9.0, 9.0, 9.0, -7.0]);
    let values = |with, only| [ints(&[-1, 0]), Value::Bool(false), Value::Bool(with), Value::Bool(only)];
    let at = Tensor::new([2], &[3.0, 3.0]);
    check_forward(&op("max", &values(false, true)), &[x.clone()], &[at.clone()]);
    check_forward(&op("max", &values(true, false)), &[x.clone()], &[Tensor::new([2], &[f64::NAN, 9.0]), at]);
    let at = Tensor::new([2], &[3.0, 5.0]);
    check_forward(
        &op("min", &values(true, false)),
        &[x.clone()],
        &[Tensor::new([2], &[f64::NAN, -7.0]), at.clone()],
    );
    check_forward(&op("min", &values(true, true)), &[x.clone()], &[at]);
    check_gradient(&op("max", &values(true, false)), &[tensor(&[2, 2, 3], 1)], &[true]);
    // Of equal elements, the first is the maximum and alone gets the gradient.
    check_gradient(&op("max", &values(true, false)), &[Tensor::new([1, 1, 3], &[2.0; 3])], &[false]);
}

#[test]
fn long_rows_choose_the_first_of_equals() {
    let mut x = vec![0.0; 10_000];
    for at in [4_097, 4_096, 4_105, 9_000] {
        x[at] = 1.0;
        let found = run(
            &op("max", &[Value::None, Value::Bool(false), Value::Bool(true), Value::Bool(false)]),
            &[Tensor::new([10_000], &x)],
        );
        let found = found.expect("runs");
        assert_eq!(
            (found[0].data[0], found[1].data[0]),
            (1.0, at.min(x.iter().position(|v| *v == 1.0).unwrap_or(0)) as f64)
        );
    }
}

#[test]
fn whole_reductions_have_their_old_names() {
    let x = tensor(&[2, 3], 1);
    let sum: f64 = x.data.iter().sum();
    check_forward(&op("reduce_sum", &[]), &[x.clone()], &[Tensor::new([], &[sum])]);
    check_forward(&op("reduce_mean", &[]), &[x.clone()], &[Tensor::new([], &[sum / 6.0])]);
    check_gradient(&op("reduce_sum", &[]), &[x.clone()], &[true]);
    check_gradient(&op("reduce_mean", &[]), &[x], &[true]);
}

/// Applies `f` to the elements up to each position along an axis.
fn running(
    x: &Tensor,
    axis: usize,
    exclusive: bool,
    reverse: bool,
    first: f64,
    f: fn(f64, f64) -> f64,
) -> Tensor {
    let mut data = Vec::new();
    each(&x.shape, |at| {
        let n = x.shape[axis];
        let taken = (0..n).filter(|i| {
            let (i, own) = if reverse { (n - 1 - i, n - 1 - at[axis]) } else { (*i, at[axis]) };
            if exclusive { i < own } else { i <= own }
        });
        let value = |i: usize| {
            let mut place = at.to_vec();
            place[axis] = i;
            element(x, &place)
        };
        data.push(taken.map(value).fold(first, f));
    });
    Tensor { shape: x.shape.clone(), data }
}

#[test]
fn running_sums_and_products() {
    for shape in [&[5][..], &[1], &[0], &[2, 3], &[3, 4, 2], &[2, 0, 3]] {
        let mut x = tensor(shape, 9);
        for axis in 0..shape.len() {
            for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                let named = if reverse { axis as i64 - shape.len() as i64 } else { axis as i64 };
                let values = [Value::Int(named), Value::Bool(exclusive), Value::Bool(reverse)];
                let expected = running(&x, axis, exclusive, reverse, 0.0, |a, b| a + b);
                check_forward(&op("cumsum", &values), &[x.clone()], &[expected]);
                check_gradient(&op("cumsum", &values), &[x.clone()], &[true]);
                let expected = running(&x, axis, exclusive, reverse, 1.0, |a, b| a * b);
                check_forward(&op("cumprod", &values), &[x.clone()], &[expected]);
                check_gradient(&op("cumprod", &values), &[x.clone()], &[true]);
            }
        }
        if x.data.len() > 2 {
            x.data[1] = 0.0;
            x.data[2] = 0.0;
            check_gradient(
                &op("cumprod", &[Value::Int(0), Value::Bool(false), Value::Bool(false)]),
                &[x],
                &[true],
            );
        }
    }
    let values = [Value::Int(1), Value::Bool(false), Value::Bool(false)];
    assert!(matches!(refused(&op("cumsum", &values), &[tensor(&[2], 1)]), Error::Axis { .. }));
}

#[test]
fn sums_and_products_of_several_arrays() {
    for shape in [&[][..], &[2, 3], &[0, 2]] {
        for n in 1..4 {
            let x: Vec<Tensor> = (0..n).map(|i| tensor(shape, i)).collect();
            let folded = |f: fn(f64, f64) -> f64| {
                let data = (0..x[0].data.len()).map(|i| x.iter().map(|x| x.data[i]).reduce(f).unwrap_or(0.0));
                Tensor { shape: x[0].shape.clone(), data: data.collect() }
            };
            check_forward(&op("add_n", &[]), &x, &[folded(|a, b| a + b)]);
            check_forward(&op("mul_n", &[]), &x, &[folded(|a, b| a * b)]);
            check_gradient(&op("add_n", &[]), &x, &vec![true; n as usize]);
            check_gradient(&op("mul_n", &[]), &x, &vec![true; n as usize]);
        }
    }
    assert!(matches!(refused(&op("add_n", &[]), &[]), Error::Type(_)));
    assert!(matches!(refused(&op("mul_n", &[]), &[tensor(&[2], 1), tensor(&[1], 1)]), Error::Shape { .. }));
}
