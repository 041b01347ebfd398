//! Tests of run locks: every exit of a run undoes its marks.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;
use crate::graph::autodiff::{self, DifferentiateOptions, Root};
use crate::graph::{BackwardOptions, Edge, ForwardOptions, Function, Variable, apply, arena, forward_all};

/// Applies an operation without arguments and returns its first output.
fn one(name: &str, x: &[&Variable]) -> Variable {
    apply(name, x, &[]).expect("builds").remove(0)
}

/// A variable of three values that requires a gradient.
fn leaf() -> Variable {
    Variable::from_values([3], &[0.1, 0.2, 0.3]).expect("fits").with_need_grad(true)
}

/// Runs forward and backward, with memory freed on the way if `clear`.
fn step(y: &Variable, clear: bool) {
    y.forward(&ForwardOptions { clear_no_need_grad: clear, ..Default::default() }).expect("runs");
    y.backward(&BackwardOptions { clear_buffer: clear, ..Default::default() }).expect("runs");
}

/// Asserts the state of a graph without active runs, without flushing deferred marks.
fn is_at_rest(y: &Variable, pending: bool) {
    arena::with(|a| {
        a.flush();
        let slot = &a.functions[a.variables[y.ix()].parent];
        assert_eq!((slot.busy, slot.count, slot.pending), (None, 1, pending));
    });
}

#[test]
fn a_run_within_a_run_is_refused_cold_and_warm() {
    let y = one("sin", &[&one("exp", &[&leaf()])]);
    for _ in 0..4 {
        step(&y, false);
        let again = |_: &Function| y.forward(&ForwardOptions::default());
        let hooked = ForwardOptions { post_hook: Some(&again), ..Default::default() };
        let refused = y.forward(&hooked).expect_err("is running");
        assert!(refused.to_string().contains("expected a graph that is at rest"), "{refused}");
        is_at_rest(&y, true);
        step(&y, false);
        is_at_rest(&y, false);
    }
}

#[test]
fn a_caught_panic_is_an_error_and_unlocks_the_graph() {
    let (x, n) = (leaf(), std::cell::Cell::new(0));
    let y = one("sin", &[&one("exp", &[&x])]);
    y.grad().storage.fill(5.0).expect("has room");
    let panics = |_: &Function| match n.get() {
        0 => panic!("on purpose"),
        left => {
            n.set(left - 1);
            Ok(())
        }
    };
    for at in [0, 1, 0, 1] {
        step(&y, false);
        n.set(at);
        let hooked = ForwardOptions { post_hook: Some(&panics), ..Default::default() };
        let error = y.forward(&hooked).expect_err("panics");
        assert!(matches!(&error, Error::Internal(text) if text == "on purpose"), "{error}");
        step(&y, false);
        is_at_rest(&y, false);
        n.set(at);
        y.forward(&ForwardOptions::default()).expect("runs");
        let hooked = BackwardOptions { pre_hook: Some(&panics), ..Default::default() };
        let error = y.backward(&hooked).expect_err("panics");
        assert!(error.is_panic(), "{error}");
        is_at_rest(&y, true);
        assert_eq!(y.grad().to_vec().expect("is there"), [5.0; 3]);
    }
    // No run of this thread is still recorded as active, so plans can be locked as a whole again.
    let own = super::Thread::current();
    assert!(arena::with(|a| !a.run_locks.single.contains(&own)));
}

/// The detach callback panics after the run, and only the test catches the panic.
#[test]
fn an_uncaught_panic_unlocks_the_graph() {
    let x = Variable::new([1 << 15]).expect("fits").with_need_grad(true);
    x.data().storage.fill(0.5).expect("has room");
    let y = one("sin", &[&one("exp", &[&x])]);
    y.grad().storage.fill(5.0).expect("has room");
    let panics = |run: &mut (dyn FnMut() + Send)| {
        run();
        panic!("on purpose");
    };
    let escapes = |run: &dyn Fn()| {
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    };
    for _ in 0..3 {
        step(&y, false);
        escapes(&|| {
            let detached = ForwardOptions { detach: Some(&panics), ..Default::default() };
            drop(y.forward(&detached));
        });
        y.forward(&ForwardOptions::default()).expect("runs");
        escapes(&|| {
            let detached = BackwardOptions { detach: Some(&panics), ..Default::default() };
            drop(y.backward(&detached));
        });
        is_at_rest(&y, true);
        assert_eq!(y.grad().to_vec().expect("is there")[..2], [5.0; 2]);
        x.grad().storage.zero().expect("is whole");
        let root = || Root { edge: Edge::Variable(y.clone()), seed: None };
        escapes(&|| {
            let detached = DifferentiateOptions { detach: Some(&panics), ..Default::default() };
            drop(autodiff::backward(&[root()], None, &detached));
        });
        assert_eq!(x.grad().to_vec().expect("is there")[..2], [0.0; 2]);
        y.forward(&ForwardOptions::default()).expect("runs");
    }
    let own = super::Thread::current();
    assert!(arena::with(|a| !a.run_locks.single.contains(&own)));
}

#[test]
fn graphs_that_are_freed_or_run_in_a_hook_do_not_disturb_the_run() {
    let y = one("sin", &[&one("exp", &[&leaf()])]);
    step(&y, false);
    for _ in 0..3 {
        let other = one("cos", &[&leaf()]);
        step(&other, true);
        step(&other, true);
        let others = RefCell::new(vec![other]);
        let hook = |_: &Function| {
            others.borrow_mut().pop().map_or(Ok(()), |other| other.forward(&ForwardOptions::default()))
        };
        y.forward(&ForwardOptions { pre_hook: Some(&hook), ..Default::default() }).expect("runs");
        is_at_rest(&y, true);
        y.backward(&BackwardOptions::default()).expect("runs");
        is_at_rest(&y, false);
    }
}

#[test]
fn a_second_loss_keeps_the_values_of_the_shared_trunk() {
    let x = leaf();
    let trunk = one("exp", &[&x]);
    let (a, b) = (one("sin", &[&trunk]), one("cos", &[&trunk]));
    drop(trunk); // no other holder is left
    for n in 0..5 {
        x.grad().storage.zero().expect("is whole");
        forward_all(&[&a, &b], &ForwardOptions::default()).expect("run");
        let clearing = BackwardOptions { clear_buffer: true, ..Default::default() };
        a.backward(&clearing).expect("runs");
        is_at_rest(&b, true);
        b.backward(&clearing).unwrap_or_else(|e| panic!("step {n}: {e}"));
        let e: Vec<f64> = [0.1f64, 0.2, 0.3].iter().map(|x| x.exp()).collect();
        for (g, e) in x.grad().to_vec().expect("is there").iter().zip(e) {
            assert!((g - e * (e.cos() - e.sin())).abs() < 1e-5);
        }
    }
}

#[test]
fn a_function_dies_with_its_last_handle_after_warm_runs() {
    let y = one("sin", &[&one("exp", &[&leaf()])]);
    for _ in 0..3 {
        step(&y, true);
    }
    let f = arena::with(|a| a.variables[y.ix()].parent);
    let generation = arena::with(|a| a.functions[f].generation);
    drop(y);
    assert_ne!(arena::with(|a| a.functions[f].generation), generation);
}
