//! The graph as a Rust API, for programs without Python.

use std::sync::Arc;

use kinnor::graph::{self, BackwardOptions, Closed, ForwardOptions, Seed, Variable, apply, forward_all};
use kinnor::ops::Value;
use kinnor::{Error, Result};

/// Returns a leaf with these values that needs a gradient.
fn leaf(values: &[f64]) -> Variable {
    Variable::from_values([values.len()], values).expect("fits").with_need_grad(true)
}

/// Applies an operation of one input.
fn unary(name: &str, x: &Variable) -> Variable {
    apply(name, &[x], &[]).expect("builds").remove(0)
}

/// Applies an operation of two inputs.
fn binary(name: &str, a: &Variable, b: &Variable) -> Variable {
    apply(name, &[a, b], &[]).expect("builds").remove(0)
}

/// Returns the values of a variable.
fn values(v: &Variable) -> Vec<f64> {
    v.data().to_vec().expect("is readable")
}

/// Returns the gradient of a variable.
fn grads(v: &Variable) -> Vec<f64> {
    v.grad().to_vec().expect("is readable")
}

/// Runs forward.
fn run(y: &Variable) {
    y.forward(&ForwardOptions::default()).expect("runs");
}

/// Runs backward from ones.
fn back(y: &Variable) {
    y.backward(&BackwardOptions::default()).expect("runs");
}

#[test]
fn gradients_of_leaves_add_up_and_others_do_not() {
    let x = leaf(&[1.0, 2.0]);
    let h = binary("mul2", &x, &x);
    let y = binary("mul2", &h, &h);
    run(&y);
    assert_eq!(values(&y), [1.0, 16.0]);
    back(&y);
    assert_eq!(grads(&x), [4.0, 32.0]);
    back(&y);
    assert_eq!((grads(&x), grads(&h)), (vec![8.0, 64.0], vec![2.0, 8.0]));
    x.grad().zero().expect("is whole");
    run(&y);
    back(&y);
    assert_eq!(grads(&x), [4.0, 32.0]);
}

#[test]
fn the_seed_and_the_gradient_of_the_root_do_not_change() {
    let x = leaf(&[3.0]);
    let y = binary("mul2", &x, &x);
    run(&y);
    y.grad().copy_from_slice(&[5.0]).expect("fits");
    back(&y);
    assert_eq!((grads(&y), grads(&x)), (vec![5.0], vec![6.0]));
    y.backward(&BackwardOptions { seed: Seed::Own, ..Default::default() }).expect("runs");
    assert_eq!(grads(&x), [36.0]);
}

#[test]
fn clearing_keeps_values_that_a_gradient_reads() {
    let x = leaf(&[0.5]);
    let h = unary("identity", &x);
    let t = unary("tanh", &h);
    let y = unary("identity", &t);
    y.forward(&ForwardOptions { clear_no_need_grad: true, ..Default::default() }).expect("runs");
    assert!(h.data().is_cleared() && !t.data().is_cleared());
    y.backward(&BackwardOptions { clear_buffer: true, ..Default::default() }).expect("runs");
    let slope = 1.0 - 0.5_f64.tanh().powi(2);
    assert!((grads(&x)[0] - slope).abs() < 1e-6);
    assert!(t.data().is_cleared());
    assert!(matches!(t.data().to_vec(), Err(Error::Cleared(_))));
    assert!(matches!(y.backward(&BackwardOptions::default()), Err(Error::Cleared(_))));
    run(&y);
    back(&y);
}

#[test]
fn forward_after_clear_buffer_refuses_to_go_backward() {
    let x = leaf(&[0.5]);
    let y = unary("sin", &unary("sin", &unary("sin", &x)));
    y.forward(&ForwardOptions { clear_buffer: true, ..Default::default() }).expect("runs");
    let error = y.backward(&BackwardOptions::default()).expect_err("is refused").to_string();
    assert!(error.contains("backward of sin") && error.contains("clear"), "{error}");
}

#[test]
fn recompute_gives_the_same_gradients() -> Result<()> {
    let build = |recompute: bool| -> Result<Vec<f64>> {
        let x = leaf(&[0.1, 0.2, 0.3]);
        let a = unary("tanh", &x);
        let b = unary("sin", &a);
        let c = binary("mul2", &b, &a);
        let y = unary("exp", &c);
        for v in [&a, &b, &c] {
            v.set_recompute(recompute);
        }
        run(&y);
        assert_eq!(a.data().is_cleared(), recompute);
        back(&y);
        Ok(grads(&x))
    };
    assert_eq!(build(true)?, build(false)?);
    Ok(())
}

#[test]
fn a_long_chain_of_functions_builds_runs_and_is_freed_on_a_small_stack() {
    let work = || {
        let x = leaf(&[0.0]);
        let mut y = x.clone();
        for _ in 0..200_000 {
            y = apply("add_scalar", &[&y], &[Value::Float(1.0)]).expect("builds").remove(0);
        }
        run(&y);
        back(&y);
        assert_eq!((values(&y)[0], grads(&x)[0]), (200_000.0, 1.0));
    };
    // Less than two bytes of stack for each function.
    std::thread::Builder::new().stack_size(1 << 18).spawn(work).expect("starts").join().expect("ends");
}

#[test]
fn every_function_runs_once_for_several_destinations() {
    let x = leaf(&[2.0]);
    let h = unary("identity", &x);
    let (p, q) = (unary("exp", &h), unary("sin", &h));
    let calls = std::cell::Cell::new(0);
    let hook = |_: &graph::Function| {
        calls.set(calls.get() + 1);
        Ok(())
    };
    forward_all(
        &[&p, &q, &x],
        &ForwardOptions { pre_hook: Some(&hook), clear_buffer: true, ..Default::default() },
    )
    .expect("runs");
    assert_eq!(calls.get(), 3);
    assert!((values(&q)[0] - 2.0_f64.sin()).abs() < 1e-6);
    let mut closed = Closed::default();
    let options = ForwardOptions { pre_hook: Some(&hook), ..Default::default() };
    p.forward_with(&options, &mut closed).expect("runs");
    q.forward_with(&options, &mut closed).expect("runs");
    assert_eq!(calls.get(), 6);
}

#[test]
fn an_error_in_a_hook_ends_the_run_and_leaves_the_graph_usable() {
    let x = leaf(&[2.0]);
    let y = unary("exp", &unary("sin", &x));
    let hook = |_: &graph::Function| Err(Error::Value("stop".into()));
    assert!(matches!(
        y.forward(&ForwardOptions { post_hook: Some(&hook), ..Default::default() }),
        Err(Error::Value(_))
    ));
    run(&y);
    assert!((values(&y)[0] - 2.0_f64.sin().exp()).abs() < 1e-6);
}

#[test]
fn rewiring_gives_a_function_to_another_variable() {
    let x = leaf(&[2.0]);
    let h = unary("identity", &x);
    let mid = Variable::new([1]).expect("fits");
    let y = unary("exp", &mid);
    mid.rewire_on(&h).expect("fits");
    assert!(h.parent().is_none() && mid.parent().is_some());
    run(&y);
    back(&y);
    assert!((grads(&x)[0] - 2.0_f64.exp()).abs() < 1e-5);
    assert_eq!(y.functions().iter().map(graph::Function::type_name).collect::<Vec<_>>(), ["Identity", "Exp"]);
}

#[test]
fn a_leaf_that_changes_shape_sets_dependent_functions_up_again() {
    let x = leaf(&[1.0, 2.0]);
    let y = unary("exp", &unary("identity", &x));
    run(&y);
    assert!(x.reset_shape([3], false).is_err());
    x.reset_shape([3], true).expect("is forced");
    x.data().copy_from_slice(&[0.0, 0.0, 0.0]).expect("fits");
    run(&y);
    assert_eq!(values(&y), [1.0, 1.0, 1.0]);
}

#[test]
fn gradients_are_graphs_that_differentiate_again() {
    let x = leaf(&[0.7]);
    let mut y = unary("sin", &x);
    for order in 0..10 {
        let one = Variable::from_values([1], &[1.0]).expect("fits");
        y = graph::grad(&[&y], &[&x], &[one]).expect("has rules").remove(0).expect("is reached");
        run(&y);
        let expected = (0.7 + std::f64::consts::FRAC_PI_2 * f64::from(order + 1)).sin();
        assert!((values(&y)[0] - expected).abs() < 1e-6, "order {order}");
    }
}

#[test]
fn dynamic_mode_computes_eagerly_and_frees_memory() {
    let old = graph::settings::scope_auto_forward(Some(true));
    let x = leaf(&[1.0]);
    let mut h = unary("identity", &x);
    let kept = h.data();
    h = unary("tanh", &unary("identity", &h));
    assert!(kept.is_cleared(), "nobody needs the first identity");
    assert!((values(&h)[0] - 1.0_f64.tanh()).abs() < 1e-6);
    back(&h);
    assert!((grads(&x)[0] - (1.0 - 1.0_f64.tanh().powi(2))).abs() < 1e-6);
    graph::settings::scope_auto_forward(old);
}

#[test]
fn operations_without_a_kernel_use_their_graph_rule() {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let r = apply("reshape", &[&x], &[Value::Ints(vec![2, 3])]).expect("builds").remove(0);
    let t = apply("transpose", &[&r], &[Value::Ints(vec![1, 0])]).expect("builds").remove(0);
    let y = binary("mul2", &t, &t);
    run(&y);
    assert_eq!(values(&t), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    back(&y);
    assert_eq!(grads(&x), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn a_cleared_seed_is_filled_again() {
    let x = leaf(&[2.0]);
    let y = binary("mul2", &x, &x);
    for n in 1..4 {
        run(&y);
        y.backward(&BackwardOptions { clear_buffer: true, ..Default::default() }).expect("runs");
        assert_eq!(grads(&x), [4.0 * f64::from(n)]);
    }
}

#[test]
fn graphs_run_on_several_threads_at_once_and_one_graph_does_not() {
    let train = || {
        let x = leaf(&[0.5; 64]);
        let mut y = x.clone();
        for _ in 0..50 {
            y = unary("tanh", &y);
        }
        for _ in 0..100 {
            run(&y);
            back(&y);
        }
        grads(&x)[0]
    };
    let alone = train();
    std::thread::scope(|s| {
        let all: Vec<_> = (0..4).map(|_| s.spawn(train)).collect();
        for t in all {
            assert_eq!(t.join().expect("runs"), alone);
        }
    });
    let x = leaf(&[0.5]);
    let y = unary("tanh", &x);
    let hook = |_: &graph::Function| {
        let refused = y.forward(&ForwardOptions::default());
        assert!(matches!(refused, Err(Error::Graph(_))));
        Ok(())
    };
    y.forward(&ForwardOptions { pre_hook: Some(&hook), ..Default::default() }).expect("runs");
}

#[test]
fn values_cleared_by_another_thread_during_a_run_are_refused_or_read_safely() {
    let x = leaf(&vec![0.5; 1 << 10]);
    let mut y = x.clone();
    for _ in 0..200 {
        y = unary("sin", &y);
    }
    run(&y);
    let expected = values(&y);
    let middle = y.functions()[100].outputs().remove(0).data();
    std::thread::scope(|s| {
        let test = Arc::new(()); // dropped at the end and by a panic, so that the thread stops in either case
        let runs = Arc::downgrade(&test);
        s.spawn(move || {
            while runs.strong_count() > 0 {
                middle.clear().expect("is its own");
                middle.zero().expect("is whole");
            }
        });
        for _ in 0..50 {
            let done = y.forward(&ForwardOptions::default());
            assert!(matches!(done, Ok(()) | Err(Error::Cleared(_))), "{done:?}");
        }
        drop(test);
    });
    run(&y);
    assert_eq!(values(&y), expected);
}

#[test]
fn indices_that_no_gradient_reads_may_be_cleared() {
    let x = leaf(&[3.0, 1.0, 2.0]);
    let values = [Value::Int(-1), Value::Bool(false), Value::Bool(true), Value::Bool(false)];
    let sorted = apply("sort", &[&unary("identity", &x)], &values).expect("builds");
    let y = binary("add2", &unary("identity", &sorted[0]), &unary("identity", &sorted[1]));
    y.forward(&ForwardOptions { clear_no_need_grad: true, ..Default::default() }).expect("runs");
    assert!(sorted[1].data().is_cleared());
    back(&y);
    assert_eq!(grads(&x), [1.0; 3]);
}

#[test]
fn a_scatter_writes_into_its_given_array() {
    let (parts, mask, x) = (leaf(&[5.0]), leaf(&[0.0, 1.0, 0.0]), leaf(&[1.0, 2.0, 3.0]));
    let whole = unary("identity", &x);
    let y = apply("bool_scatter", &[&parts, &mask, &whole], &[]).expect("builds").remove(0);
    run(&y);
    assert_eq!((values(&y), values(&whole)), (vec![1.0, 5.0, 3.0], vec![1.0, 5.0, 3.0]));
    back(&y);
    assert_eq!((grads(&parts), grads(&x)), (vec![1.0], vec![1.0, 0.0, 1.0]));
    let refused = apply("bool_scatter", &[&parts, &mask, &x], &[]).map(drop).expect_err("x is a leaf");
    assert!(matches!(refused, Error::Graph(_)) && values(&x) == [1.0, 2.0, 3.0]);
}

#[test]
fn deep_copies_share_nothing() {
    let x = Variable::from_values([2], &[1.0, 2.0]).expect("fits").with_need_grad(true);
    x.grad().copy_from_slice(&[3.0, 4.0]).expect("fits");
    let context = kinnor::graph::settings::Context::default();
    let copy = x.create_deep_copy(&context, true).expect("has values");
    assert!(copy != x && copy.need_grad() && copy.parent().is_none());
    assert_eq!(
        (copy.data().to_vec().expect("has"), copy.grad().to_vec().expect("has")),
        (vec![1.0, 2.0], vec![3.0, 4.0])
    );
    copy.data().copy_from_slice(&[9.0, 9.0]).expect("fits");
    assert_eq!(x.data().to_vec().expect("has"), [1.0, 2.0]);
    let bare = x.create_deep_copy(&context, false).expect("has values");
    assert_eq!(bare.grad().to_vec().expect("has"), [0.0, 0.0]);
}

#[test]
fn leaves_get_all_gradients_or_none() {
    use kinnor::graph::autodiff::{self, DifferentiateOptions, Root};
    use kinnor::graph::{Edge, When};
    use std::sync::Arc;

    let (x, w) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 4.0]));
    let h = binary("mul2", &x, &w);
    let y = binary("mul2", &h, &h);
    let root = [Root { edge: Edge::Variable(y.clone()), seed: None }];
    let retain = DifferentiateOptions { retain_graph: true, ..Default::default() };
    let error = autodiff::backward(&root, None, &retain).expect_err("has not run");
    assert!(error.to_string().contains("call forward() first"), "{error}");
    run(&y);
    let refuse = |_: &Variable| Err(Error::Value("no".into()));
    let hook = w.add_gradient_hook(When::Gradient, Arc::new(refuse)).expect("requires grad");
    autodiff::backward(&root, None, &retain).expect_err("the hook fails");
    assert!(!x.has_grad() && !w.has_grad());
    hook.remove();
    autodiff::backward(&root, None, &retain).expect("runs");
    assert_eq!((grads(&x), grads(&w)), (vec![18.0, 64.0], vec![6.0, 32.0]));
    let by = [Edge::Variable(h.clone()), Edge::Variable(x.clone())];
    let found = autodiff::grad(&root, &by, &DifferentiateOptions::default()).expect("runs");
    let found: Vec<_> = found.into_iter().map(|g| values(&g.expect("is used"))).collect();
    assert_eq!(found, [vec![6.0, 16.0], vec![18.0, 64.0]]);
    let error = autodiff::backward(&root, None, &retain).expect_err("was given back");
    assert!(matches!(error, Error::Freed(_)), "{error}");
    run(&y);
    autodiff::backward(&root, None, &retain).expect("runs again");
    assert_eq!(grads(&x), [36.0, 128.0]);
}
