//! Gradients of compositions: records the functions that a formula builds, and applies their rules in reverse order.

use smallvec::SmallVec;

use super::{SESSIONS, Sym};
use crate::ops::{Op, Symbols};

/// One function that a formula built.
pub(super) struct TapeStep {
    /// The operation.
    pub(super) op: Op,
    /// The inputs.
    pub(super) x: SmallVec<[Sym; 4]>,
    /// The outputs.
    pub(super) y: SmallVec<[Sym; 2]>,
}

/// The functions that a formula built, in order.
pub(crate) struct Tape(Vec<TapeStep>);

impl Tape {
    /// Evaluates a formula and records the functions it builds.
    pub(crate) fn of<R>(formula: impl FnOnce() -> R) -> (R, Self) {
        let swap = |tape| {
            SESSIONS.with(|s| s.borrow_mut().last_mut().and_then(|s| std::mem::replace(&mut s.tape, tape)))
        };
        let outer = swap(Some(Vec::new()));
        let result = formula();
        (result, Self(swap(outer).unwrap_or_default()))
    }

    /// The gradients of `inputs`, given the gradients of some outputs. `None` for an input that no output depends on.
    pub(crate) fn gradients(&self, outputs: &[(Sym, Sym)], inputs: &[Sym]) -> Vec<Option<Sym>> {
        let number = |x: Sym| if let Sym::Node(v) = x { Some(v as usize) } else { None };
        let all = self.0.iter().flat_map(|step| step.x.iter().chain(&step.y)).chain(inputs);
        let count = all.filter_map(|x| number(*x)).max().map_or(0, |most| most + 1);
        let mut wanted = vec![false; count];
        inputs.iter().filter_map(|x| number(*x)).for_each(|v| wanted[v] = true);
        let is_wanted = |wanted: &[bool], x: Sym| number(x).is_some_and(|v| wanted[v]);
        for step in &self.0 {
            if step.x.iter().any(|x| is_wanted(&wanted, *x)) {
                step.y.iter().filter_map(|y| number(*y)).for_each(|v| wanted[v] = true);
            }
        }
        let mut found: Vec<Option<Sym>> = vec![None; count];
        let add = |found: &mut Vec<Option<Sym>>, x: Sym, g: Sym| {
            if let Some(sum) = number(x).and_then(|v| found.get_mut(v)) {
                *sum = Some(sum.map_or(g, |sum| sum + g));
            }
        };
        for (y, g) in outputs {
            add(&mut found, *y, *g);
        }
        for step in self.0.iter().rev() {
            let given = |y: &Sym| number(*y).and_then(|v| found[v]);
            if !step.y.iter().any(|y| is_wanted(&wanted, *y)) || step.y.iter().all(|y| given(y).is_none()) {
                continue;
            }
            let zeros = |y: &Sym| Sym::Node(Sym::Const(0.0).node(&y.shape()));
            let gy: SmallVec<[Sym; 2]> =
                step.y.iter().map(|y| given(y).unwrap_or_else(|| zeros(y))).collect();
            let asked: SmallVec<[bool; 4]> = step.x.iter().map(|x| is_wanted(&wanted, *x)).collect();
            let rule = step.op.gradient(Symbols::new(&step.x, &step.y, &gy, &asked));
            for (x, g) in step.x.iter().zip(rule.unwrap_or_default()) {
                g.filter(|_| is_wanted(&wanted, *x)).into_iter().for_each(|g| add(&mut found, *x, g));
            }
        }
        inputs.iter().map(|x| number(*x).and_then(|v| found[v])).collect()
    }
}
