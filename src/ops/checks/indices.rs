//! Tests of operations that select elements by index, mask or size.

use super::{Value, given, ints, op, refused};
use crate::Error;
use crate::ops::Op;
use crate::ops::indexing::gather::GatherBackward;
use crate::ops::indexing::masking::BoolTake;
use crate::ops::indexing::scatter::TakeAlong;
use crate::ops::testing::{Tensor, check_forward, check_gradient};

#[test]
fn one_hot_puts_one_at_the_index_of_each_row() {
    let x = Tensor::new([2, 2], &[0.0, 1.0, -1.0, 0.0]);
    let mut expected = Tensor::new([2, 3, 2], &[0.0; 12]);
    expected.data[1] = 1.0;
    expected.data[6 + 4] = 1.0;
    check_forward(&op("one_hot", &[ints(&[3, 2])]), &[x.clone()], &[expected]);
    check_forward(&op("one_hot", &[ints(&[3])]), &[Tensor::new([0, 1], &[])], &[Tensor::new([0, 3], &[])]);
    // An index out of range names no place.
    let mut first = Tensor::new([2, 3, 1], &[0.0; 6]);
    first.data[3 + 2] = 1.0;
    check_forward(&op("one_hot", &[ints(&[3, 1])]), &[x.clone()], &[first]);
    assert!(matches!(refused(&op("one_hot", &[ints(&[3])]), &[x]), Error::Shape { .. }));
}

#[test]
fn gather_takes_rows() {
    let x = Tensor::sample([2, 3, 4], 1);
    let gather = |axis, batch| op("gather", &[Value::Int(axis), Value::Int(batch)]);
    let index = Tensor::new([2, 2], &[2.0, 0.0, -1.0, 1.0]);
    let mut taken = Vec::new();
    for i in 0..2 {
        for j in [2, 0, 2, 1] {
            taken.extend_from_slice(&x.data[i * 12 + j * 4..][..4]);
        }
    }
    check_forward(&gather(1, 0), &[x.clone(), index.clone()], &[Tensor::new([2, 2, 2, 4], &taken)]);
    let mut taken = Vec::new();
    for (i, rows) in [[2, 0], [2, 1]].iter().enumerate() {
        for j in rows {
            taken.extend_from_slice(&x.data[i * 12 + j * 4..][..4]);
        }
    }
    check_forward(&gather(-2, 1), &[x.clone(), index.clone()], &[Tensor::new([2, 2, 4], &taken)]);
    for (axis, batch) in [(0, 0), (1, 0), (-1, 0), (1, 1), (2, 1)] {
        let rows = Tensor::new([2, 2], &[1.0, 0.0, -1.0, 1.0]);
        check_gradient(&gather(axis, batch), &[x.clone(), rows.clone()], &[true, false]);
        let gy = super::run(&gather(axis, batch), &[x.clone(), rows.clone()]).expect("runs").remove(0);
        let back = Op::new(GatherBackward { axis, batch_dims: batch, shape: vec![2, 3, 4] });
        check_gradient(&back, &[gy, rows], &[true, false]);
    }
    let none = Tensor::new([0], &[]);
    check_forward(&gather(0, 0), &[x.clone(), none.clone()], &[Tensor::new([0, 3, 4], &[])]);
    check_gradient(&gather(0, 0), &[x.clone(), none], &[true, false]);
    let error = refused(&gather(1, 0), &[x.clone(), Tensor::new([], &[7.0])]);
    assert_eq!(error.to_string(), "gather: expected an index within the length 3 of axis 1, got 7");
    assert!(matches!(refused(&gather(0, 1), &[x.clone(), index.clone()]), Error::Argument { .. }));
    assert!(matches!(refused(&gather(3, 0), &[x, index]), Error::Axis { .. }));
}

#[test]
fn gather_nd_and_scatter_nd_are_each_others_gradients() {
    let x = Tensor::sample([2, 3, 4], 1);
    let index = Tensor::new([2, 3], &[1.0, 0.0, -1.0, 2.0, 0.0, 1.0]);
    let rows: Vec<f64> = [5, 0, 4].iter().flat_map(|row| x.data[row * 4..][..4].to_vec()).collect();
    let rows = Tensor::new([3, 4], &rows);
    check_forward(&op("gather_nd", &[]), &[x.clone(), index.clone()], &[rows.clone()]);
    check_gradient(&op("gather_nd", &[]), &[x.clone(), index.clone()], &[true, false]);
    let twice = Tensor::new([1, 2], &[1.0, 1.0]);
    check_gradient(&op("gather_nd", &[]), &[x.clone(), twice.clone()], &[true, false]);

    let shape = ints(&[2, 3, 4]);
    for add in [false, true] {
        let into_zeros = given("scatter_nd", &[shape.clone(), Value::Bool(add)], 0b011);
        let mut expected = Tensor::new([2, 3, 4], &[0.0; 24]);
        [5, 0, 4]
            .iter()
            .enumerate()
            .for_each(|(i, row)| expected.data[row * 4..][..4].copy_from_slice(&rows.data[i * 4..][..4]));
        check_forward(&into_zeros, &[rows.clone(), index.clone()], &[expected]);
        check_gradient(&into_zeros, &[rows.clone(), index.clone()], &[true, false]);
        let into_out = op("scatter_nd", &[Value::None, Value::Bool(add)]);
        check_gradient(&into_out, &[rows.clone(), index.clone(), x.clone()], &[true, false, true]);
    }
    let small = [Tensor::new([2], &[1.0, 2.0]), twice];
    let out = |add| given("scatter_nd", &[ints(&[3]), Value::Bool(add)], 0b011);
    check_forward(&out(false), &small, &[Tensor::new([3], &[0.0, 2.0, 0.0])]);
    check_forward(&out(true), &small, &[Tensor::new([3], &[0.0, 3.0, 0.0])]);
    check_gradient(&out(true), &small, &[true, false]);
    let error = refused(&op("gather_nd", &[]), &[x.clone(), Tensor::new([2, 1], &[1.0, -4.0])]);
    assert_eq!(error.to_string(), "gather_nd: expected an index within the length 3 of axis 1, got -4");
    assert!(matches!(
        refused(&op("gather_nd", &[]), &[x, Tensor::new([4, 1], &[0.0; 4])]),
        Error::Shape { .. }
    ));
    let neither = given("scatter_nd", &[Value::None, Value::Bool(false)], 0b011);
    assert!(matches!(refused(&neither, &small), Error::Argument { .. }));
    let empty = [Tensor::new([0], &[]), Tensor::new([1, 0], &[])];
    check_forward(&out(false), &empty, &[Tensor::new([3], &[0.0; 3])]);
}

#[test]
fn scatter_add_adds_along_an_axis() {
    let index = Tensor::new([2, 2], &[0.0, 1.0, 2.0, 2.0]);
    let x = [Tensor::new([3, 3], &[0.0; 9]), index.clone(), Tensor::new([2, 2], &[1.0; 4])];
    let expected = Tensor::new([3, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
    check_forward(&op("scatter_add", &[Value::None]), &x, &[expected]);
    let x = [Tensor::sample([3, 3], 1), index.clone(), Tensor::sample([2, 2], 2)];
    for axis in [0, 1, -1] {
        check_gradient(&op("scatter_add", &[Value::Int(axis)]), &x, &[true, false, true]);
        check_gradient(&Op::new(TakeAlong { axis, shape: vec![2, 2] }), &x[..2], &[true, false]);
        let beyond = [x[0].clone(), index.clone(), Tensor::sample([3, 4], 2)];
        check_gradient(&op("scatter_add", &[Value::Int(axis)]), &beyond, &[true, false, true]);
        check_gradient(&Op::new(TakeAlong { axis, shape: vec![3, 4] }), &beyond[..2], &[true, false]);
    }
    let wild = [x[0].clone(), Tensor::new([2, 2], &[0.0, 1.0, 3.0, 0.0]), x[2].clone()];
    assert!(matches!(refused(&op("scatter_add", &[Value::Int(0)]), &wild), Error::Index(_)));
    let long = [x[0].clone(), Tensor::new([1, 4], &[0.0; 4]), Tensor::new([1, 4], &[0.0; 4])];
    assert!(matches!(refused(&op("scatter_add", &[Value::Int(0)]), &long), Error::Shape { .. }));
    let scalars = [Tensor::new([], &[1.0]), Tensor::new([], &[0.0]), Tensor::new([], &[1.0])];
    assert!(matches!(refused(&op("scatter_add", &[Value::Int(0)]), &scalars), Error::Axis { .. }));
}

#[test]
fn bool_fill_bool_gather_and_bool_scatter_follow_their_masks() {
    let x = Tensor::sample([2, 3], 1);
    for mask in
        [Tensor::new([3], &[1.0, 0.0, 2.0]), Tensor::new([2, 1], &[0.0, 1.0]), Tensor::new([], &[0.0])]
    {
        check_gradient(&op("bool_fill", &[Value::Float(4.0)]), &[x.clone(), mask], &[true, true]);
    }
    let mask = Tensor::new([3], &[1.0, 0.0, 2.0]);
    let filled = Tensor::new([2, 3], &[4.0, x.data[1], 4.0, 4.0, x.data[4], 4.0]);
    check_forward(&op("bool_fill", &[Value::Float(4.0)]), &[x.clone(), mask.clone()], &[filled]);
    let wide = Tensor::new([1, 2, 3], &[0.0; 6]);
    assert!(matches!(
        refused(&op("bool_fill", &[Value::Float(0.0)]), &[x.clone(), wide]),
        Error::Shape { .. }
    ));

    let input = Tensor::sample([3, 2], 2);
    let rows = Tensor::new([2, 2], &[input.data[0], input.data[1], input.data[4], input.data[5]]);
    check_forward(&op("bool_gather", &[]), &[input.clone(), mask.clone()], &[rows.clone()]);
    check_gradient(&op("bool_gather", &[]), &[input.clone(), mask.clone()], &[true, false]);
    check_gradient(&Op::new(BoolTake { n: 2 }), &[input.clone(), mask.clone()], &[true, false]);
    let zeros = Tensor::new([3], &[0.0; 3]);
    check_forward(&op("bool_gather", &[]), &[input.clone(), zeros.clone()], &[Tensor::new([0, 2], &[])]);
    assert!(matches!(refused(&op("bool_gather", &[]), &[x.clone(), mask.clone()]), Error::Shape { .. }));
    let shapes = [&input.shape, &mask.shape];
    assert!(matches!(op("bool_gather", &[]).shapes(&shapes), Err(Error::Graph(_))));

    let put = given("bool_scatter", &[], 0b011);
    let expected = Tensor::new([3, 2], &[rows.data[0], rows.data[1], 0.0, 0.0, rows.data[2], rows.data[3]]);
    check_forward(&put, &[rows.clone(), mask.clone()], &[expected]);
    check_gradient(&put, &[rows.clone(), mask.clone()], &[true, false]);
    check_gradient(
        &op("bool_scatter", &[]),
        &[rows.clone(), mask.clone(), input.clone()],
        &[true, false, true],
    );
    assert!(matches!(refused(&put, &[rows, zeros]), Error::Value(_)));
}

#[test]
fn nonzero_lists_the_indices_of_nonzero_elements() {
    let x = Tensor::new([2, 3], &[0.0, 1.0, 0.0, -1.0, 0.0, f64::NAN]);
    check_forward(&op("nonzero", &[]), &[x], &[Tensor::new([2, 3], &[0.0, 1.0, 1.0, 1.0, 0.0, 2.0])]);
    check_forward(&op("nonzero", &[]), &[Tensor::new([0], &[])], &[Tensor::new([1, 0], &[])]);
}

#[test]
fn sort_returns_values_and_indices_in_either_order() {
    let sort = |axis, reverse, with, only| {
        op("sort", &[Value::Int(axis), Value::Bool(reverse), Value::Bool(with), Value::Bool(only)])
    };
    let x = Tensor::new([2, 3], &[3.0, f64::NAN, 1.0, 2.0, 2.0, 0.5]);
    let sorted = Tensor::new([2, 3], &[1.0, 3.0, f64::NAN, 0.5, 2.0, 2.0]);
    let index = Tensor::new([2, 3], &[2.0, 0.0, 1.0, 2.0, 0.0, 1.0]);
    check_forward(&sort(-1, false, true, false), &[x.clone()], &[sorted, index.clone()]);
    check_forward(&sort(-1, false, false, true), &[x.clone()], &[index]);
    let columns = Tensor::new([2, 3], &[3.0, f64::NAN, 1.0, 2.0, 2.0, 0.5]);
    check_forward(&sort(0, true, false, false), &[x], &[columns]);
    for shape in [[3, 2, 2], [1, 1, 1], [2, 0, 3]] {
        for axis in [0, 1, -1] {
            check_gradient(&sort(axis, axis == 1, false, false), &[Tensor::sample(shape, 3)], &[true]);
            check_gradient(&sort(axis, axis == 0, true, false), &[Tensor::sample(shape, 3)], &[true]);
        }
    }
    assert!(matches!(refused(&sort(0, false, false, false), &[Tensor::new([], &[1.0])]), Error::Axis { .. }));
}

#[test]
fn searchsorted_finds_the_insertion_index() {
    let x =
        [Tensor::new([2, 3], &[1.0, 3.0, 5.0, 2.0, 4.0, 6.0]), Tensor::new([2, 2], &[3.0, 9.0, 1.0, 4.0])];
    let search = |right| op("searchsorted", &[Value::Bool(right)]);
    check_forward(&search(false), &x, &[Tensor::new([2, 2], &[1.0, 3.0, 0.0, 1.0])]);
    check_forward(&search(true), &x, &[Tensor::new([2, 2], &[2.0, 3.0, 0.0, 2.0])]);
    let wrong = [Tensor::new([3], &[1.0, 3.0, 5.0]), Tensor::new([1, 2], &[3.0, 9.0])];
    assert!(matches!(refused(&search(false), &wrong), Error::Shape { .. }));
}
