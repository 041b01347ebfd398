//! Tests of operations that move elements.

use super::{Value, each, element, ints, op, refused, run};
use crate::Error;
use crate::array::Shape;
use crate::ops::testing::{Tensor, check_forward, check_gradient};

/// A tensor of shape `shape` whose elements are `f(index)`.
fn made(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Tensor {
    let mut data = Vec::new();
    each(shape, |at| data.push(f(at)));
    Tensor { shape: Shape::from(shape), data }
}

/// Checks the outputs and the gradients of the operation `name`.
fn check(name: &str, values: &[Value], x: &[Tensor], expected: &[Tensor]) {
    check_forward(&op(name, values), x, expected);
    check_gradient(&op(name, values), x, &vec![true; x.len()]);
}

#[test]
fn transposition_is_undone_by_its_gradient() {
    let x = Tensor::sample([2, 17, 1, 3], 1);
    for axes in [[0, 1, 2, 3], [3, 1, 0, 2], [-1, -2, -3, -4], [0, 3, 1, 2]] {
        let order: Vec<usize> = axes.iter().map(|a| i64::rem_euclid(*a, 4) as usize).collect();
        let shape: Vec<usize> = order.iter().map(|a| x.shape[*a]).collect();
        let expected = made(&shape, |at| {
            let mut from = [0; 4];
            order.iter().zip(at).for_each(|(axis, i)| from[*axis] = *i);
            element(&x, &from)
        });
        check("transpose", &[ints(&axes)], &[x.clone()], &[expected]);
    }
    check("transpose", &[ints(&[1, 0])], &[Tensor::new([0, 2], &[])], &[Tensor::new([2, 0], &[])]);
    check("transpose", &[ints(&[])], &[Tensor::new([], &[2.0])], &[Tensor::new([], &[2.0])]);
}

#[test]
fn slices_are_those_of_python() {
    let x = Tensor::sample([5, 4], 1);
    // Expected as for `range(5)[start:stop:step]`.
    let cases: [(i64, i64, i64, &[usize]); 9] = [
        (0, 5, 1, &[0, 1, 2, 3, 4]),
        (-2, 9, 1, &[3, 4]),
        (1, -1, 2, &[1, 3]),
        (-1, -6, -1, &[4, 3, 2, 1, 0]),
        (9, 1, -2, &[4, 2]),
        (3, 1, 1, &[]),
        (2, 1, -1, &[2]),
        (i64::MIN, i64::MAX, i64::MAX, &[0]),
        (i64::MAX, i64::MIN, -3, &[4, 1]),
    ];
    for (start, stop, step, rows) in cases {
        let values = [ints(&[start, 1]), ints(&[stop, 3]), ints(&[step, 1])];
        let expected = made(&[rows.len(), 2], |at| element(&x, &[rows[at[0]], at[1] + 1]));
        check("slice", &values, &[x.clone()], &[expected]);
    }
    check("slice", &[Value::None, Value::None, Value::None], &[x.clone()], &[x.clone()]);
    let reversed = made(&[5, 4], |at| element(&x, &[4 - at[0], at[1]]));
    check("slice", &[Value::None, Value::None, ints(&[-1, 1])], &[x.clone()], &[reversed]);
    for values in [[Value::None, Value::None, ints(&[0, 1])], [ints(&[0]), Value::None, Value::None]] {
        assert!(matches!(refused(&op("slice", &values), &[x.clone()]), Error::Argument { .. }));
    }
    check(
        "slice",
        &[Value::None, Value::None, ints(&[-1])],
        &[Tensor::new([0], &[])],
        &[Tensor::new([0], &[])],
    );
}

#[test]
fn pad_fills_with_a_constant_or_mirrors_or_repeats_the_edge() {
    let x = Tensor::new([4], &[0.5, 1.5, 2.5, 3.5]);
    let pad = |width: &[i64], mode: &str, value| [ints(width), Value::Str(mode.into()), Value::Float(value)];
    let cases: [(&[i64], &str, &[f64]); 5] = [
        (&[1, 2], "constant", &[9.0, 0.5, 1.5, 2.5, 3.5, 9.0, 9.0]),
        (&[2, 3], "reflect", &[2.5, 1.5, 0.5, 1.5, 2.5, 3.5, 2.5, 1.5, 0.5]),
        (&[5, 0], "reflect", &[1.5, 2.5, 3.5, 2.5, 1.5, 0.5, 1.5, 2.5, 3.5]),
        (&[2, 3], "repeat", &[0.5, 0.5, 0.5, 1.5, 2.5, 3.5, 3.5, 3.5, 3.5]),
        (&[0, 0], "reflect", &[0.5, 1.5, 2.5, 3.5]),
    ];
    for (width, mode, expected) in cases {
        let expected = Tensor { shape: [expected.len()].into(), data: expected.to_vec() };
        check("pad", &pad(width, mode, 9.0), &[x.clone()], &[expected]);
    }
    let x = Tensor::sample([2, 1, 3], 1);
    for mode in ["constant", "reflect", "repeat"] {
        check_gradient(&op("pad", &pad(&[1, 0, 0, 2], mode, 1.0)), &[x.clone()], &[true]);
        check_gradient(&op("pad", &pad(&[1, 1, 0, 3, 2, 2], mode, 1.0)), &[x.clone()], &[true]);
    }
    let empty = Tensor::new([0], &[]);
    check("pad", &pad(&[1, 1], "constant", 2.0), &[empty.clone()], &[Tensor::new([2], &[2.0; 2])]);
    assert!(matches!(refused(&op("pad", &pad(&[1, 1], "reflect", 0.0)), &[empty]), Error::Shape { .. }));
    for wrong in [pad(&[-1, 0], "constant", 0.0), pad(&[1], "constant", 0.0), pad(&[1, 1], "mirror", 0.0)] {
        assert!(matches!(refused(&op("pad", &wrong), &[x.clone()]), Error::Argument { .. }));
    }
}

#[test]
fn flips_and_shifts() {
    let x = Tensor::sample([2, 3, 4], 1);
    let flipped = made(&[2, 3, 4], |at| element(&x, &[1 - at[0], at[1], 3 - at[2]]));
    check("flip", &[ints(&[0, -1])], &[x.clone()], &[flipped]);
    let last = made(&[2, 3, 4], |at| element(&x, &[at[0], at[1], 3 - at[2]]));
    check("flip", &[Value::None], &[x.clone()], &[last]);
    for (shift, row, mode) in [
        (1, [0, 0, 1, 2], "nearest"),
        (-2, [2, 3, 3, 3], "nearest"),
        (9, [0, 0, 0, 0], "nearest"),
        (i64::MIN, [3, 3, 3, 3], "nearest"),
        (1, [0, 0, 1, 2], "reflect"),
        (-2, [2, 3, 3, 2], "reflect"),
        (6, [2, 3, 3, 2], "reflect"),
    ] {
        let expected = made(&[2, 3, 4], |at| element(&x, &[at[0], at[1], row[at[2]]]));
        check("shift", &[ints(&[shift]), Value::Str(mode.into())], &[x.clone()], &[expected]);
    }
    let empty = Tensor::new([0, 2], &[]);
    for mode in ["nearest", "reflect"] {
        check("shift", &[ints(&[3, -1]), Value::Str(mode.into())], &[empty.clone()], &[empty.clone()]);
    }
    check("flip", &[ints(&[0])], &[empty.clone()], &[empty]);
    assert!(matches!(refused(&op("flip", &[ints(&[3])]), &[x]), Error::Axis { .. }));
}

#[test]
fn joining_and_cutting_are_inverse() {
    for (axis, shapes) in
        [(0, [[2, 3], [1, 3], [0, 3]]), (-1, [[2, 3], [2, 1], [2, 2]]), (1, [[0, 1], [0, 2], [0, 0]])]
    {
        let x: Vec<Tensor> = shapes.iter().zip(0..).map(|(s, i)| Tensor::sample(*s, i)).collect();
        let y = run(&op("concatenate", &[Value::Int(axis)]), &x).expect("runs").remove(0);
        let along = i64::rem_euclid(axis, 2) as usize;
        let expected = made(&y.shape, |at| {
            let (mut at, mut i) = (at.to_vec(), 0);
            while at[along] >= x[i].shape[along] {
                at[along] -= x[i].shape[along];
                i += 1;
            }
            element(&x[i], &at)
        });
        check("concatenate", &[Value::Int(axis)], &x, &[expected]);
    }
    for axis in [0, 1, 2, -1, -3] {
        let x = [Tensor::sample([2, 3], 1), Tensor::sample([2, 3], 2), Tensor::sample([2, 3], 3)];
        let y = run(&op("stack", &[Value::Int(axis)]), &x).expect("runs").remove(0);
        assert_eq!(y.shape[i64::rem_euclid(axis, 3) as usize], 3);
        check("split", &[Value::Int(axis)], &[y.clone()], &x);
        check("stack", &[Value::Int(axis)], &x, &[y]);
    }
    check("stack", &[Value::Int(0)], &[Tensor::new([], &[3.0])], &[Tensor::new([1], &[3.0])]);
    check("split", &[Value::Int(0)], &[Tensor::new([1, 0], &[])], &[Tensor::new([0], &[])]);
    let x = [Tensor::sample([2, 3], 1), Tensor::sample([3, 2], 2)];
    assert!(matches!(refused(&op("concatenate", &[Value::Int(0)]), &x), Error::Shape { .. }));
    assert!(matches!(refused(&op("concatenate", &[Value::Int(2)]), &x), Error::Axis { .. }));
    assert!(matches!(refused(&op("stack", &[Value::Int(0)]), &x), Error::Shape { .. }));
    assert!(matches!(refused(&op("concatenate", &[Value::Int(0)]), &[]), Error::Type(_)));
    assert!(matches!(
        refused(&op("split", &[Value::Int(0)]), &[Tensor::new([0, 2], &[])]),
        Error::Shape { .. }
    ));
}

#[test]
fn tile_and_broadcasts_repeat_elements() {
    let x = Tensor::sample([2, 3], 1);
    for reps in [&[2, 3][..], &[2], &[3, 1, 2], &[0, 1], &[]] {
        let n = reps.len().max(2);
        let lead = n - 2;
        let times = |i: usize| (i + reps.len()).checked_sub(n).map_or(1, |at| reps[at] as usize);
        let shape: Vec<usize> =
            (0..n).map(|i| times(i) * if i < lead { 1 } else { x.shape[i - lead] }).collect();
        let expected = made(&shape, |at| element(&x, &[at[lead] % 2, at[lead + 1] % 3]));
        check("tile", &[ints(reps)], &[x.clone()], &[expected]);
    }
    assert!(matches!(refused(&op("tile", &[ints(&[-1])]), &[x.clone()]), Error::Argument { .. }));
    let like = Tensor::sample([2, 3, 4], 2);
    for (axis, own) in [(0, &[2, 3][..]), (1, &[3]), (-1, &[3, 4]), (2, &[4]), (-1, &[]), (0, &[2, 3, 4])] {
        let y = made(own, |at| at.iter().fold(0.3, |v, i| v * 7.0 + *i as f64));
        let start = if axis < 0 { 3 - own.len() } else { axis as usize };
        let expected = made(&[2, 3, 4], |at| element(&y, &at[start..start + own.len()]));
        check("broadcast_to", &[Value::Int(axis)], &[like.clone(), y], &[expected]);
    }
    assert!(matches!(
        refused(&op("broadcast_to", &[Value::Int(1)]), &[like.clone(), x.clone()]),
        Error::Shape { .. }
    ));
    assert!(matches!(refused(&op("broadcast_to", &[Value::Int(-1)]), &[x, like]), Error::Shape { .. }));
    for (from, to) in [(&[2, 1, 3][..], [2, 4, 3]), (&[1, 1, 1], [2, 3, 2]), (&[2, 1, 1], [2, 0, 3])] {
        let x = made(from, |at| at.iter().fold(0.3, |v, i| v * 7.0 + *i as f64));
        let expected = made(&to.map(|d| d as usize), |at| {
            element(&x, &at.iter().zip(from).map(|(i, d)| i % d).collect::<Vec<_>>())
        });
        check("broadcast", &[ints(&to)], &[x], &[expected]);
    }
}

#[test]
fn meshgrid_equals_its_formula_in_both_orders() {
    let x = [Tensor::sample([2], 1), Tensor::sample([3], 2), Tensor::sample([4], 3)];
    let grid = |order: [usize; 3]| {
        let shape: Vec<usize> = order.iter().map(|i| x[*i].data.len()).collect();
        (0..3).map(|i| made(&shape, |at| x[i].data[at[order[i]]])).collect::<Vec<_>>()
    };
    check("meshgrid", &[Value::Bool(true)], &x, &grid([0, 1, 2]));
    check("meshgrid", &[Value::Bool(false)], &x, &grid([1, 0, 2]));
    check("meshgrid", &[Value::Bool(false)], &x[..1], &x[..1]);
    check_gradient(
        &op("meshgrid", &[Value::Bool(true)]),
        &[x[0].clone(), Tensor::new([0], &[])],
        &[true, true],
    );
}

#[test]
fn diagonals_and_triangles() {
    for shape in [[2, 3], [1, 1], [0, 2], [2, 0]] {
        let x = Tensor::sample(shape, 1);
        let square =
            made(
                &[shape[0], shape[1], shape[1]],
                |at| {
                    if at[1] == at[2] { element(&x, &at[..2]) } else { 0.0 }
                },
            );
        check("matrix_diag_part", &[], &[square.clone()], &[x.clone()]);
        check("matrix_diag", &[], &[x], &[square]);
    }
    for (k, upper) in [(0, true), (1, false), (-1, true), (-1, false), (i64::MAX, true), (i64::MIN, false)] {
        for shape in [&[3, 4][..], &[2, 4, 3], &[0, 2]] {
            let x = made(shape, |at| 1.0 + at.iter().fold(0.3, |v, i| v * 7.0 + *i as f64));
            let expected = made(shape, |at| {
                let (row, column) = (at[at.len() - 2] as i64, at[at.len() - 1] as i64);
                let edge = row.saturating_add(k);
                let kept = if upper { column >= edge } else { column <= edge };
                if kept { element(&x, at) } else { 0.0 }
            });
            check("trilu", &[Value::Int(k), Value::Bool(upper)], &[x], &[expected]);
        }
    }
    for k in [0, 2, -1] {
        let ones = made(&[3, 4], |at| f64::from(u8::from(at[1] as i64 - at[0] as i64 == k)));
        check("eye_like", &[Value::Int(k)], &[Tensor::sample([3, 4], 1)], &[ones]);
    }
    assert!(matches!(
        refused(&op("matrix_diag_part", &[]), &[Tensor::sample([2, 3], 1)]),
        Error::Shape { .. }
    ));
    assert!(matches!(
        refused(&op("trilu", &[Value::Int(0), Value::Bool(true)]), &[Tensor::sample([2], 1)]),
        Error::Shape { .. }
    ));
    assert!(matches!(
        refused(&op("eye_like", &[Value::Int(0)]), &[Tensor::sample([2], 1)]),
        Error::Shape { .. }
    ));
}

#[test]
fn arange_and_linspace_equal_their_formulas() {
    let arange = |a, b, c| op("arange", &[Value::Float(a), Value::Float(b), Value::Float(c)]);
    check_forward(&arange(0.0, 1.0, 0.3), &[], &[Tensor::new([4], &[0.0, 0.3, 0.6, 0.9])]);
    check_forward(&arange(3.0, 0.0, -1.0), &[], &[Tensor::new([3], &[3.0, 2.0, 1.0])]);
    check_forward(&arange(3.0, 0.0, 1.0), &[], &[Tensor::new([0], &[])]);
    for (a, b, c) in [(0.0, 1.0, 0.0), (0.0, f64::INFINITY, 1.0), (f64::NAN, 1.0, 1.0)] {
        assert!(matches!(refused(&arange(a, b, c), &[]), Error::Argument { .. }));
    }
    assert!(matches!(refused(&arange(0.0, 1e300, 1.0), &[]), Error::Memory { .. }));
    let linspace = |n| op("linspace", &[Value::Float(0.0), Value::Float(1.0), Value::Int(n)]);
    check_forward(&linspace(5), &[], &[Tensor::new([5], &[0.0, 0.25, 0.5, 0.75, 1.0])]);
    check_forward(&linspace(1), &[], &[Tensor::new([1], &[0.0])]);
    check_forward(&linspace(0), &[], &[Tensor::new([0], &[])]);
    assert!(matches!(refused(&linspace(-1), &[]), Error::Argument { .. }));
}
