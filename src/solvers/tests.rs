//! Tests of solvers apart from their formulas: affected parameters, states, gradients, hooks, refusals.

use std::cell::RefCell;
use std::sync::Arc;

use super::testing::{Leaf, read, solver, write};
use super::{Existing, Hooks, SOLVERS, SolverState, Source, find};
use crate::Error;
use crate::array::{Access, DType, Storage};
use crate::kernels::threads;
use crate::ops::Value;

/// A float32 parameter with values and a gradient.
fn leaf(w: &[f64], g: &[f64]) -> Leaf {
    let leaf = Leaf::new(DType::F32, w);
    write(&leaf.grad, DType::F32, g);
    leaf
}

#[test]
fn each_solver_documents_its_arguments_and_has_defaults() {
    for entry in SOLVERS {
        let doc = entry.spec.doc();
        for part in ["Args:", "Returns:"] {
            assert!(doc.contains(part), "{}: no `{part}`", entry.spec.name);
        }
        for arg in entry.spec.args {
            assert!(
                doc.contains(&format!("    {}: ", arg.name)),
                "{}: `{}` lacks a line",
                entry.spec.name,
                arg.name
            );
            assert!(arg.default.is_some(), "{}: `{}` lacks a default", entry.spec.name, arg.name);
        }
    }
}

#[test]
fn parameters_with_zeroed_gradients_are_not_updated() {
    let (a, b) = (leaf(&[1.0, 2.0], &[1.0, 1.0]), leaf(&[3.0], &[1.0]));
    let s = solver("Momentum", &[], &[("a", &a), ("b", &b)]);
    s.zero_grad().expect("are whole");
    write(&a.grad, DType::F32, &[1.0, 1.0]);
    s.weight_decay(0.5, Hooks::none()).expect("runs");
    assert_eq!(read(&a.grad), [1.5, 2.0]);
    assert!(b.grad.is_zeroing());
    s.update(Hooks::none()).expect("runs");
    assert_eq!(b.values(), [3.0]);
    let t: Vec<_> = s.states().into_iter().map(|(name, state)| (name, state.t)).collect();
    assert_eq!(t, [("a".to_string(), 1), ("b".to_string(), 0)]);
}

#[test]
fn every_size_and_type_is_updated_alike() {
    for n in [0, 1, 15, 16, 17, 256, 300, 1000] {
        let w: Vec<f64> = (0..n).map(|i| f64::from(i % 7) - 3.0).collect();
        let g: Vec<f64> = (0..n).map(|i| f64::from(i % 5) * 0.5 - 1.0).collect();
        let expected: Vec<f64> = w.iter().zip(&g).map(|(w, g)| w - 0.5 * g).collect();
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32] {
            for g_dtype in [DType::F16, DType::F32, DType::F64] {
                let p = Leaf::new(dtype, &w);
                write(&p.grad, g_dtype, &g);
                let s = solver("Sgd", &[Value::Float(0.5)], &[("w", &p)]);
                s.update(Hooks::none()).expect("runs");
                assert_eq!(p.values(), expected, "{dtype} by {g_dtype}");
                let kept = if dtype == DType::I32 { DType::F32 } else { dtype };
                assert_eq!(p.data().dtype(), Some(kept));
                assert_eq!(read(&p.grad), g);
            }
        }
    }
}

#[test]
fn an_update_writes_to_the_current_storage_of_a_parameter() {
    let p = leaf(&[1.0], &[1.0]);
    let s = solver("Sgd", &[Value::Float(1.0)], &[("w", &p)]);
    let other = Storage::new(1);
    other.fill(5.0).expect("is whole");
    *p.data.lock() = other;
    s.update(Hooks::none()).expect("runs");
    assert_eq!(p.values(), [4.0]);
}

#[test]
fn parameters_are_added_replaced_and_removed() {
    let [a, b, c] = [1.0, 2.0, 3.0].map(|w| leaf(&[w], &[1.0]));
    let s = solver("Momentum", &[Value::Float(1.0), Value::Float(0.5)], &[("b", &b), ("a", &a)]);
    s.update(Hooks::none()).expect("runs");
    let named = |name: &str, p: &Leaf| vec![(name.to_string(), p.clone())];
    let t = || s.states().iter().map(|(name, s)| format!("{name}{}", s.t)).collect::<Vec<_>>().join(" ");

    s.set_parameters(named("b", &c), Existing::Succeeded).expect("is of the same shape");
    assert_eq!(t(), "b1 a1");
    s.update(Hooks::none()).expect("runs");
    assert_eq!((b.values(), c.values()), (vec![1.0], vec![1.5]));
    s.set_parameters(named("b", &b), Existing::Replaced).expect("fits");
    assert_eq!(t(), "b0 a2");
    s.update(Hooks::none()).expect("runs");
    assert_eq!(b.values(), [0.0]);

    let wide = leaf(&[1.0, 2.0], &[1.0, 1.0]);
    let refused = s.set_parameters(named("a", &wide), Existing::Succeeded);
    assert!(matches!(refused, Err(Error::Shape { .. })));
    assert_eq!(t(), "b1 a3");
    let refused = s.remove_parameters(["b", "unknown"]);
    assert!(matches!(refused, Err(Error::Key(_))));
    assert_eq!(t(), "b1 a3");
    s.remove_parameters(["b"]).expect("is there");
    assert_eq!(t(), "a3");
    s.set_parameters(named("c", &c), Existing::Replaced).expect("fits");
    assert_eq!(t(), "a3 c0");
    s.set_parameters(named("a", &a), Existing::Removed).expect("fits");
    assert_eq!(t(), "a0");
    s.clear_parameters();
    assert!(s.parameters().is_empty());
}

#[test]
fn saved_states_continue_the_same_updates() {
    for entry in SOLVERS {
        let name = entry.spec.name;
        let (a, b) = (leaf(&[1.0, -2.0], &[0.5, 1.0]), leaf(&[1.0, -2.0], &[0.5, 1.0]));
        let first = solver(name, &[], &[("w", &a)]);
        first.update(Hooks::none()).expect("runs");
        write(&b.data(), DType::F32, &a.values());
        let second = solver(name, &[], &[("w", &b)]);
        second.set_states(first.states()).expect("fits");
        for s in [&first, &second] {
            s.update(Hooks::none()).expect("runs");
        }
        assert_eq!(a.values(), b.values(), "{name}");
        assert_eq!(second.states()[0].1.t, 2);
    }
}

#[test]
fn states_that_fit_no_parameter_are_refused() {
    let p = leaf(&[1.0, 2.0], &[1.0, 1.0]);
    let s = solver("Adam", &[], &[("w", &p)]);
    let state = s.states()[0].1.clone();
    let set = |name: &str, state: &SolverState| s.set_states(vec![(name.to_string(), state.clone())]);
    let unknown = set("v", &state).expect_err("has no such parameter");
    assert!(unknown.to_string().contains("Set weight parameter for v first"));
    assert!(matches!(unknown, Error::Graph(_)));
    let mut fewer = state.clone();
    fewer.pstate.pop();
    assert!(matches!(set("w", &fewer), Err(Error::Key(_))));
    let mut longer = state;
    longer.pstate[1].shape = [3].into();
    longer.pstate[1].data = Storage::new(3);
    assert!(matches!(set("w", &longer), Err(Error::Shape { .. })));
}

#[test]
fn state_names_are_those_of_nnabla() {
    let names = |name: &str, values: &[Value]| {
        let p = leaf(&[1.0], &[1.0]);
        let states = solver(name, values, &[("w", &p)]).states();
        states[0].1.pstate.iter().map(|s| s.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("Sgd", &[]), "");
    assert_eq!(names("RMSprop", &[]), "v");
    assert_eq!(names("Adam", &[]), "mean var");
    assert_eq!(names("AdaBelief", &[]), "mean var");
    let mut values: Vec<_> = [1e-3, 0.9, 0.999, 1e-8, 0.0].map(Value::Float).to_vec();
    values.push(Value::Bool(true));
    assert_eq!(names("AdaBelief", &values), "mean var s_max");
}

#[test]
fn fused_decay_lasts_for_one_update() {
    let p = leaf(&[1.0], &[0.0]);
    let s = solver("AdamW", &[], &[("w", &p)]);
    assert!(s.weight_decay_is_fused());
    let mut last = 1.0;
    for (rate, expected) in [(None, 1e-4), (Some(0.5), 0.5), (None, 1e-4), (Some(0.0), 0.0)] {
        if let Some(rate) = rate {
            s.weight_decay(rate, Hooks::none()).expect("is a rate");
        }
        s.update(Hooks::none()).expect("runs");
        let now = p.values()[0];
        assert!((last - now - expected * last).abs() < 1e-7, "{rate:?}");
        last = now;
    }
}

#[test]
fn gradients_are_clipped_and_scaled() {
    let (a, b) = (leaf(&[0.0; 2], &[3.0, 4.0]), leaf(&[0.0; 1], &[1.0]));
    let s = solver("Sgd", &[], &[("a", &a), ("b", &b)]);
    s.clip_grad_by_norm(0.0, Hooks::none()).expect("runs");
    assert_eq!(read(&a.grad), [3.0, 4.0]);
    s.clip_grad_by_norm(2.5, Hooks::none()).expect("runs");
    assert_eq!((read(&a.grad), read(&b.grad)), (vec![1.5, 2.0], vec![1.0]));
    s.scale_grad(2.0, Hooks::none()).expect("runs");
    assert_eq!((read(&a.grad), read(&b.grad)), (vec![3.0, 4.0], vec![2.0]));
    let norm = s.clip_grad_by_global_norm(100.0).expect("runs");
    assert!((norm - 29.0_f64.sqrt()).abs() < 1e-12);
    s.clip_grad_by_global_norm(norm / 2.0).expect("runs");
    assert_eq!((read(&a.grad), read(&b.grad)), (vec![1.5, 2.0], vec![1.0]));
    write(&b.grad, DType::F32, &[f64::INFINITY]);
    assert_eq!(s.clip_grad_by_global_norm(1.0).expect("runs"), f64::INFINITY);
    assert_eq!(read(&a.grad), [1.5, 2.0]);
    assert!(matches!(s.clip_grad_by_norm(-1.0, Hooks::none()), Err(Error::Argument { .. })));
    assert!(matches!(s.scale_grad(f64::NAN, Hooks::none()), Err(Error::Argument { .. })));
}

#[test]
fn large_parameters_give_the_same_bits_on_any_number_of_threads() {
    let n = 70_001;
    let w: Vec<f64> = (0..n).map(|i| f64::from(i).sin()).collect();
    let g: Vec<f64> = (0..n).map(|i| (f64::from(i) * 0.7).cos()).collect();
    let steps = |n_threads| {
        threads::set_num_threads(n_threads);
        let p = leaf(&w, &g);
        let s = solver("Lamb", &[], &[("w", &p)]);
        let norm = s.clip_grad_by_global_norm(1.0).expect("runs");
        s.update(Hooks::none()).expect("runs");
        (norm, p.values())
    };
    let before = threads::num_threads();
    let one = steps(1);
    let norm = g.iter().map(|g| f64::from(*g as f32).powi(2)).sum::<f64>().sqrt();
    assert!((one.0 - norm).abs() < 1e-9 * norm);
    assert_eq!(one, steps(3));
    threads::set_num_threads(before);
}

#[test]
fn nan_and_infinite_gradients_are_found() {
    let p = Leaf::new(DType::F32, &[0.0; 40]);
    let s = solver("Sgd", &[], &[("w", &p)]);
    for dtype in [DType::F16, DType::F32, DType::F64] {
        for (value, inf, nan) in
            [(1.0, false, false), (f64::NEG_INFINITY, true, false), (f64::NAN, false, true)]
        {
            let mut g = [0.5; 40];
            g[37] = value;
            write(&p.grad, dtype, &g);
            assert_eq!(s.check_inf_grad(Hooks::none()).expect("runs"), inf);
            assert_eq!(s.check_nan_grad(Hooks::none()).expect("runs"), nan);
            assert_eq!(s.check_inf_or_nan_grad(Hooks::none()).expect("runs"), inf || nan);
        }
    }
}

#[test]
fn hooks_run_around_each_parameter() {
    let [a, b, c] = [1.0, 2.0, 3.0].map(|w| leaf(&[w], &[1.0]));
    let s = solver("Sgd", &[Value::Float(1.0)], &[("a", &a), ("b", &b), ("c", &c)]);
    b.grad.zero().expect("is whole");
    let seen = RefCell::new(Vec::new());
    let mut pre = || {
        s.set_learning_rate(1.0)?;
        seen.borrow_mut().push(("pre", a.values()[0], c.values()[0]));
        Ok(())
    };
    let mut post = || {
        seen.borrow_mut().push(("post", a.values()[0], c.values()[0]));
        Ok(())
    };
    s.update(Hooks { pre: Some(&mut pre), post: Some(&mut post) }).expect("runs");
    let expected = [("pre", 1.0, 3.0), ("post", 0.0, 3.0), ("pre", 0.0, 3.0), ("post", 0.0, 2.0)];
    assert_eq!(*seen.borrow(), expected);

    let mut refuse = || Err(Error::Value("enough".into()));
    let refused = s.update(Hooks { pre: Some(&mut refuse), post: None });
    assert!(matches!(refused, Err(Error::Value(_))));
    assert_eq!(a.values(), [0.0]);
}

#[test]
fn a_failed_update_names_the_parameter_and_changes_nothing() {
    let (a, b) = (leaf(&[1.0], &[1.0]), leaf(&[2.0], &[1.0]));
    let s = solver("Sgd", &[], &[("a", &a), ("conv/W", &b)]);
    b.grad.clear(true).expect("is its own");
    let refused = s.update(Hooks::none()).expect_err("nothing to read");
    assert!(matches!(&refused, Error::Cleared(text) if text.contains("'conv/W'")), "{refused}");
    assert_eq!(a.values(), [1.0]);
    write(&b.grad, DType::F32, &[1.0]);
    *b.data.lock() = Storage::new(2);
    assert!(matches!(s.update(Hooks::none()), Err(Error::Shape { .. })));
    assert_eq!(a.values(), [1.0]);
}

#[test]
fn invalid_arguments_and_rates_are_refused() {
    let make = |name: &str, values: &[Value]| find(name).expect("is registered").solver::<Leaf>(values);
    for bad in [f64::NAN, f64::INFINITY, -1e-3] {
        assert!(matches!(make("Sgd", &[Value::Float(bad)]), Err(Error::Argument { .. })));
        let s = make("Sgd", &[]).expect("binds");
        assert!(s.set_learning_rate(bad).is_err());
        assert!(s.weight_decay(bad, Hooks::none()).is_err());
    }
    assert!(make("Adam", &[Value::Float(1e-3), Value::Float(1.0)]).is_err());
    assert!(matches!(make("Sgd", &[Value::Str("fast".into())]), Err(Error::Argument { .. })));
    assert!(matches!(make("Sgd", &[Value::Int(1), Value::Int(1)]), Err(Error::Type(_))));
    let s = make("Sgd", &[Value::Int(0)]).expect("zero is a rate");
    s.set_learning_rate(0.1).expect("is a rate");
    assert_eq!(s.learning_rate(), 0.1); // No number of single precision.
    assert_eq!(s.info(), [("lr", Value::Float(0.0))]);
}

#[test]
fn a_warm_update_allocates_nothing_in_buffers() {
    let p = leaf(&[1.0; 100], &[1.0; 100]);
    let s = solver("Adam", &[], &[("w", &p)]);
    s.update(Hooks::none()).expect("runs");
    let places = || {
        let states = s.states().remove(0).1.pstate;
        let states = states.iter().map(|s| Arc::clone(&s.data));
        let all = states.chain([p.data(), Arc::clone(&p.grad)]);
        all.map(|s| s.at(DType::F32, Access::Write)).collect::<Vec<_>>()
    };
    let before = places();
    s.update(Hooks::none()).expect("runs");
    assert!(before.iter().all(Option::is_some));
    assert_eq!(places(), before);
}
