//! Tests of random operations, and of operations with a special role in the graph.

use super::{Value, ints, op, refused, run};
use crate::Error;
use crate::ops::testing::{Tensor, check_forward, check_gradient, forward};
use crate::ops::{Alias, Op, State};

/// A dropout operation.
fn dropout(p: f64, seed: i64) -> Op {
    op("dropout", &[Value::Float(p), Value::Int(seed)])
}

#[test]
fn dropout_keeps_the_expected_value() {
    let x = Tensor { shape: [100_000].into(), data: vec![2.0; 100_000] };
    for p in [0.0, 0.1, 0.5, 0.9] {
        let y = run(&dropout(p, 3), &[x.clone()]).expect("runs").remove(0);
        let dropped = y.data.iter().filter(|y| **y == 0.0).count() as f64 / 1e5;
        assert!((dropped - p).abs() < 0.006, "{dropped} dropped at {p}");
        assert!(y.data.iter().all(|y| *y == 0.0 || (y - 2.0 / (1.0 - p)).abs() < 1e-12));
    }
    for p in [1.0, -0.1, f64::NAN] {
        assert!(matches!(refused(&dropout(p, 3), &[x.clone()]), Error::Argument { .. }));
    }
}

#[test]
fn dropout_differentiates_through_its_own_mask() {
    check_gradient(&dropout(0.5, 7), &[Tensor::sample([5, 9], 1)], &[true]);
    check_gradient(&dropout(0.5, 7), &[Tensor::new([0], &[])], &[true]);
}

#[test]
fn a_recomputation_repeats_and_a_seed_starts_anew() {
    let x = Tensor::sample([200], 1);
    let draw = |op: &Op, state: &mut State, again| {
        forward(op, &[x.clone()], state, again).expect("runs").remove(0).data
    };
    for seed in [-1, 5] {
        let (op, mut state) = (dropout(0.5, seed), State::default());
        let first = draw(&op, &mut state, false);
        assert_eq!(first, draw(&op, &mut state, true));
        assert_ne!(first, draw(&op, &mut state, false));
    }
    assert_eq!(
        draw(&dropout(0.5, 5), &mut State::default(), false),
        draw(&dropout(0.5, 5), &mut State::default(), false)
    );
}

#[test]
fn random_arrays_have_their_ranges() {
    let shape = || ints(&[1000, 3]);
    let draw = |name, a: Value, b: Value| {
        let y = run(&op(name, &[a, b, shape(), Value::Int(1)]), &[]).expect("runs").remove(0);
        assert_eq!(y.shape[..], [1000, 3]);
        y.data
    };
    assert!(draw("rand", Value::Float(-1.0), Value::Float(2.0)).iter().all(|v| (-1.0..2.0).contains(v)));
    let normal = draw("randn", Value::Float(10.0), Value::Float(0.1));
    assert!((normal.iter().sum::<f64>() / 3000.0 - 10.0).abs() < 0.01);
    assert!(draw("randint", Value::Int(-2), Value::Int(2)).iter().all(|v| (-2.0..2.0).contains(v)));
    assert!(draw("rand_binomial", Value::Int(4), Value::Float(0.5)).iter().all(|v| (0.0..=4.0).contains(v)));
    for (name, a, b) in [
        ("rand", Value::Float(1.0), Value::Float(1.0)),
        ("randn", Value::Float(0.0), Value::Float(-1.0)),
        ("randint", Value::Int(3), Value::Int(3)),
        ("rand_binomial", Value::Int(-1), Value::Float(0.5)),
        ("rand_binomial", Value::Int(1), Value::Float(1.5)),
        ("rand_gamma", Value::Float(0.0), Value::Float(1.0)),
        ("rand_beta", Value::Float(1.0), Value::Float(f64::NAN)),
    ] {
        assert!(matches!(refused(&op(name, &[a, b, shape(), Value::Int(1)]), &[]), Error::Argument { .. }));
    }
    let empty = op("rand", &[Value::Float(0.0), Value::Float(1.0), ints(&[0, 2]), Value::Int(-1)]);
    assert_eq!(run(&empty, &[]).expect("runs")[0].shape[..], [0, 2]);
}

#[test]
fn unlink_and_sink_pass_no_gradient() {
    let x = Tensor::sample([2, 3], 1);
    check_forward(&op("unlink", &[]), &[x.clone()], &[x.clone()]);
    check_gradient(&op("unlink", &[]), &[x.clone()], &[false]);
    assert_eq!(op("unlink", &[]).facts().alias(0), Some(Alias { output: 0, modifies: false }));

    let sink = op("sink", &[Value::Bool(true)]);
    check_forward(&sink, &[x.clone(), Tensor::new([], &[1.0])], &[Tensor::new([], &[0.0])]);
    check_gradient(&sink, &[x.clone(), Tensor::new([], &[1.0])], &[false, false]);
    assert!(!sink.facts().may_clear_inputs && !sink.facts().keeps_gradients);
    assert!(op("sink", &[Value::Bool(false)]).facts().keeps_gradients);

    let y = Tensor::sample([2, 3], 2);
    check_forward(&op("assign", &[]), &[x.clone(), y.clone()], &[y.clone()]);
    check_gradient(&op("assign", &[]), &[x.clone(), y], &[false, false]);
    assert!(op("assign", &[]).facts().overwrites(0) && !op("assign", &[]).facts().overwrites(1));
    assert!(matches!(refused(&op("assign", &[]), &[x, Tensor::new([2], &[0.0; 2])]), Error::Shape { .. }));
}
