//! Tests of pooling against explicit sums and maxima.

use std::slice::from_ref;

use super::{AveragePooling, GlobalAveragePooling, PoolingDataGrad, SumPooling, Unpooling};
use crate::array::Shape;
use crate::ops::spatial::max_pooling::{MaxPooling, MaxPoolingBackward, MaxPoolingTake};
use crate::ops::testing::{Tensor, check_forward, check_gradient};
use crate::ops::{Compute, Op};

/// A tensor of sample values by seed.
fn sample(shape: &[usize], seed: u64) -> Tensor {
    let shape = Shape::from(shape);
    Tensor {
        data: (0..shape.size()).flat_map(|i| Tensor::sample([1], seed * 1000 + i as u64).data).collect(),
        shape,
    }
}

/// One set of arguments.
#[derive(Clone, Debug)]
struct Case {
    /// The shape of the input.
    x: Vec<usize>,
    /// The shape of the window.
    kernel: Vec<i64>,
    /// The distance of adjacent windows. None for the default.
    stride: Option<Vec<i64>>,
    /// The padding. None for the default.
    pad: Option<Vec<i64>>,
    /// False if windows may reach beyond the input.
    ignore_border: bool,
    /// True if channels are the last axis.
    channel_last: bool,
}

/// All sets of arguments under test.
fn cases() -> Vec<Case> {
    type Steps<'a> = Option<&'a [i64]>;
    let sizes: &[(&[usize], &[i64], Steps<'_>, Steps<'_>)] = &[
        (&[1], &[1], None, None),
        (&[7], &[3], Some(&[2]), Some(&[1])),
        (&[2, 5], &[2], None, None),
        (&[2, 9], &[2], Some(&[4]), Some(&[1])),
        (&[4, 6], &[2, 2], Some(&[2, 1]), Some(&[1, 0])),
        (&[2, 5, 7], &[3, 2], Some(&[1, 3]), Some(&[2, 1])),
        (&[2, 3, 4], &[3, 5], None, None),
        (&[2, 2, 5, 5], &[2, 2], None, None),
        (&[2, 3, 4, 5], &[2, 2, 2], Some(&[2, 1, 1]), Some(&[1, 0, 1])),
        (&[1, 2, 4, 3, 5], &[2, 3, 4], None, Some(&[0, 1, 3])),
        (&[0, 4, 4], &[2, 2], None, None),
    ];
    let mut cases = Vec::new();
    for (x, kernel, stride, pad) in sizes {
        for flags in 0..4 {
            let (ignore_border, channel_last) = (flags & 1 == 1, flags & 2 == 2);
            let x = if channel_last { [x, &[3][..]].concat() } else { x.to_vec() };
            let (stride, pad) = (stride.map(<[i64]>::to_vec), pad.map(<[i64]>::to_vec));
            cases.push(Case { x, kernel: kernel.to_vec(), stride, pad, ignore_border, channel_last });
        }
    }
    cases
}

/// The shape of the output. For each output element, the input elements in its window and their number including
/// padding.
fn windows(c: &Case) -> (Vec<usize>, Vec<(Vec<usize>, usize)>) {
    let n = c.kernel.len();
    let first = c.x.len() - n - usize::from(c.channel_last);
    let steps = c.stride.clone().unwrap_or_else(|| c.kernel.clone());
    let pads = c.pad.clone().unwrap_or_else(|| vec![0; n]);
    let mut y = c.x.clone();
    for i in 0..n {
        let over =
            c.x[first + i] as i64 + if c.ignore_border { 2 * pads[i] - c.kernel[i] } else { pads[i] - 1 };
        y[first + i] = (over / steps[i]) as usize + 1;
    }
    let size: usize = y.iter().product();
    let window = |o: usize| {
        let (mut rest, mut reached, mut padded, mut stride) = (o, vec![0], 1, 1);
        for axis in (0..y.len()).rev() {
            let (place, dim) = ((rest % y[axis]) as i64, c.x[axis] as i64);
            rest /= y[axis];
            let mut along: Vec<i64> = vec![place];
            if (first..first + n).contains(&axis) {
                let i = axis - first;
                let start = place * steps[i] - pads[i];
                padded *= (start..start + c.kernel[i]).filter(|p| *p < dim + pads[i]).count();
                along = (start..start + c.kernel[i]).filter(|p| (0..dim).contains(p)).collect();
            }
            reached = along
                .iter()
                .flat_map(|p| reached.iter().map(|r| *p as usize * stride + r).collect::<Vec<_>>())
                .collect();
            stride *= c.x[axis];
        }
        (reached, padded)
    };
    (y.clone(), (0..size).map(window).collect())
}

/// The expected output: `f` of each window and its number of elements with padding.
fn output(c: &Case, f: impl Fn(&[usize], usize) -> f64) -> Tensor {
    let (shape, windows) = windows(c);
    Tensor { shape: Shape::from(shape), data: windows.iter().map(|(w, padded)| f(w, *padded)).collect() }
}

/// The element of a window with the largest value.
fn largest(x: &Tensor, window: &[usize]) -> usize {
    window
        .iter()
        .copied()
        .reduce(|a, b| if x.data[b] > x.data[a] { b } else { a })
        .expect("a window has elements")
}

#[test]
fn pooled_sums_and_averages_equal_their_formulas() {
    for c in cases() {
        let x = sample(&c.x, 1);
        let Case { kernel, stride, pad, ignore_border, channel_last, .. } = c.clone();
        let sum = |w: &[usize]| w.iter().map(|i| x.data[*i]).sum::<f64>();
        let shape: Vec<i64> = c.x.iter().map(|d| *d as i64).collect();
        let check = |op: Op, average, including_pad, expected: Tensor| {
            check_forward(&op, from_ref(&x), from_ref(&expected));
            check_gradient(&op, from_ref(&x), &[true]);
            let back = PoolingDataGrad {
                shape: shape.clone(),
                kernel: kernel.clone(),
                stride: stride.clone(),
                ignore_border,
                pad: pad.clone(),
                channel_last,
                average,
                including_pad,
            };
            check_gradient(&Op::new(back), &[sample(&expected.shape, 2)], &[true]);
        };
        let (k, s, p) = (kernel.clone(), stride.clone(), pad.clone());
        let op = SumPooling { kernel: k, stride: s, ignore_border, pad: p, channel_last };
        check(Op::new(op), false, false, output(&c, |w, _| sum(w)));
        for including_pad in [false, true] {
            let (kernel, stride, pad) = (kernel.clone(), stride.clone(), pad.clone());
            let op = AveragePooling { kernel, stride, ignore_border, pad, channel_last, including_pad };
            let n = |w: &[usize], padded: usize| if including_pad { padded } else { w.len() } as f64;
            check(Op::new(op), true, including_pad, output(&c, |w, padded| sum(w) / n(w, padded)));
        }
    }
}

#[test]
fn maxima_are_the_largest_and_their_gradients_go_to_them() {
    for c in cases() {
        let (x, v) = (sample(&c.x, 1), sample(&c.x, 2));
        let Case { kernel, stride, pad, ignore_border, channel_last, .. } = c.clone();
        let op = Op::new(MaxPooling { kernel, stride, ignore_border, pad, channel_last });
        let y = output(&c, |w, _| x.data[largest(&x, w)]);
        check_forward(&op, from_ref(&x), from_ref(&y));
        check_gradient(&op, from_ref(&x), &[true]);

        let dy = sample(&y.shape, 3);
        let mut dx = Tensor { shape: x.shape.clone(), data: vec![0.0; x.data.len()] };
        windows(&c).1.iter().zip(&dy.data).for_each(|((w, _), g)| dx.data[largest(&x, w)] += g);
        let Case { kernel, stride, pad, ignore_border, channel_last, .. } = c.clone();
        let op = Op::new(MaxPoolingBackward { kernel, stride, ignore_border, pad, channel_last });
        check_forward(&op, &[dy.clone(), x.clone()], &[dx]);
        check_gradient(&op, &[dy, x.clone()], &[true, true]);

        let Case { kernel, stride, pad, ignore_border, channel_last, .. } = c.clone();
        let op = Op::new(MaxPoolingTake { kernel, stride, ignore_border, pad, channel_last });
        check_forward(&op, &[v.clone(), x.clone()], &[output(&c, |w, _| v.data[largest(&x, w)])]);
        check_gradient(&op, &[v, x], &[true, true]);
    }
}

/// A maximum pooling with stride 1.
fn max(kernel: &[i64]) -> MaxPooling {
    MaxPooling {
        kernel: kernel.to_vec(),
        stride: Some(vec![1]),
        ignore_border: true,
        pad: None,
        channel_last: false,
    }
}

#[test]
fn the_first_of_equal_elements_and_nan_is_the_largest() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let x = Tensor::new([6], &[-inf, -inf, 1.0, nan, 1.0, 2.0]);
    check_forward(&Op::new(max(&[2])), &[x], &[Tensor::new([5], &[-inf, 1.0, nan, nan, 2.0])]);
    let back = MaxPoolingBackward {
        kernel: vec![2],
        stride: Some(vec![1]),
        ignore_border: true,
        pad: None,
        channel_last: false,
    };
    let (dy, x) = (Tensor::new([3], &[1.0, 2.0, 4.0]), Tensor::new([4], &[5.0, 5.0, nan, nan]));
    check_forward(&Op::new(back), &[dy, x], &[Tensor::new([4], &[1.0, 0.0, 6.0, 0.0])]);
}

#[test]
fn global_averages_are_over_all_but_two_axes() {
    for shape in [&[2, 3][..], &[2, 3, 4], &[1, 1, 1, 1], &[2, 3, 4, 5], &[2, 1, 2, 3, 2], &[0, 3, 2, 2]] {
        let x = sample(shape, 1);
        let n: usize = shape[2..].iter().product();
        let y: Vec<f64> = x.data.chunks(n).map(|x| x.iter().sum::<f64>() / n as f64).collect();
        let y = Tensor { shape: Shape::from([shape[0], shape[1], 1, 1]), data: y };
        check_forward(&Op::new(GlobalAveragePooling {}), from_ref(&x), &[y]);
        check_gradient(&Op::new(GlobalAveragePooling {}), &[x], &[true]);
    }
}

#[test]
fn unpooling_repeats_elements() {
    let x = Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let row = |a: f64, b: f64| vec![a, a, a, b, b, b];
    let y = [row(1.0, 2.0), row(1.0, 2.0), row(3.0, 4.0), row(3.0, 4.0)].concat();
    let op = |kernel: &[i64], channel_last| Op::new(Unpooling { kernel: kernel.to_vec(), channel_last });
    check_forward(&op(&[2, 3], false), from_ref(&x), &[Tensor::new([4, 6], &y)]);
    let repeated = Tensor::new([4, 2], &[1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
    check_forward(&op(&[2], true), &[x], &[repeated]);
    for shape in [&[5][..], &[2, 3], &[2, 1, 3], &[0, 2]] {
        check_gradient(&op(&[3], false), &[sample(shape, 1)], &[true]);
    }
    check_gradient(&op(&[2, 1, 3], false), &[sample(&[2, 3, 2, 1], 1)], &[true]);
    check_gradient(&op(&[2, 3], true), &[sample(&[1, 2, 3, 2], 1)], &[true]);
}

/// Checks the message of the error for an input of this shape.
#[track_caller]
fn refused(op: impl Compute, shape: &[usize], message: &str) {
    let error = Op::new(op).shapes(&[&Shape::from(shape)]).expect_err("is refused");
    assert_eq!(error.to_string(), message);
}

#[test]
fn errors_say_what_was_expected_and_given() {
    refused(
        max(&[2, 2]),
        &[4, 4],
        "max_pooling: expected `stride` to be 2 numbers, 1 or more, for the spatial axes, got (1)",
    );
    refused(
        MaxPooling { pad: Some(vec![2]), ..max(&[2]) },
        &[4],
        "max_pooling: expected `pad` to be less than kernel, which is [2], got [2]",
    );
    refused(max(&[]), &[4], "max_pooling: expected `kernel` to be one to three numbers, got []");
    refused(
        MaxPooling { channel_last: true, ..max(&[2]) },
        &[4],
        "max_pooling: expected an input with the 1 axes of `kernel` and one of channels, got shape (4,)",
    );
    refused(
        max(&[5]),
        &[2, 3],
        "max_pooling: expected at least one window along spatial axis 0, where input is 3, kernel 5, pad 0, stride 1, \
         got shape (2, 3)",
    );
    refused(
        GlobalAveragePooling {},
        &[3],
        "global_average_pooling: expected an input of shape (n, c, ...) with at least one element in each channel, got \
         shape (3,)",
    );
    refused(
        Unpooling { kernel: vec![0], channel_last: false },
        &[3],
        "unpooling: expected `kernel` to be numbers of one or more, got [0]",
    );
}
