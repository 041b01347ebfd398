//! Keeps a training step within a memory budget: chooses which values to drop after their last forward reader and to
//! recompute for the backward run, at low cost.
//!
//! The graph is cut into segments. Values that cross a cut are kept. Values between two cuts are dropped, and
//! restored together when the backward run reaches the segment. On a chain of n equal values, sqrt(n) segments need
//! about 2 sqrt(n) values at a time, for one more forward run. On other graphs the cuts go where few bytes cross.
//! Values that are expensive to recompute for their size may be kept. Spare memory at the end goes to the values that
//! save most. Each choice is evaluated by a simulation of the whole step, so the result does not depend on these
//! heuristics.

use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::budget::r#static::model::StepModel;
use crate::graph::budget::r#static::roots::rehearsal;
use crate::graph::budget::r#static::simulate::StepCost;
use crate::graph::lifetime::rules::Policy;
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::step::setup::Stop;
use crate::{Error, Result};

/// The largest number of function steps to simulate during a search, except for huge graphs: about half a second.
const MOST_STEPS: usize = 2_000_000;

/// The factor between successive segment lengths that are tried.
const SHORTER: f64 = 0.84;

/// The values to drop, and the simulated cost.
#[derive(Clone)]
pub(crate) struct DropChoice {
    /// One entry for each value of the model.
    pub(crate) drop: Vec<bool>,
    /// The result of the simulation.
    pub(crate) outcome: StepCost,
}

/// A plan of a forward run to `roots` that keeps it and the following backward run within `bytes`.
pub(crate) fn plan(
    a: &mut Arena,
    roots: &[Ix],
    policy: Policy,
    bytes: usize,
    enter: impl Fn(&Arena, Ix) -> bool,
) -> Result<ForwardPlan, Stop> {
    let mut plan = ForwardPlan::make(a, roots, Policy::default(), enter)?;
    let rehearsal = rehearsal(a, &plan, roots, policy)?;
    let choice = CheckpointSearch::new(&rehearsal).within(bytes)?;
    for (n, ends) in rehearsal.ends.iter().enumerate() {
        for v in ends.iter().filter(|v| choice.drop[**v as usize]) {
            let inputs = &rehearsal.forward[n].inputs;
            plan.clears.extend(inputs.iter().rposition(|input| input == v).map(|i| (n as u32, i as u32)));
            let v = rehearsal.values[*v as usize].variable;
            a.change_flags(v, flag::DROPPED, true);
        }
    }
    if rehearsal.backward.len() > 1 {
        forget_drops(a, &rehearsal, &choice.drop);
    }
    plan.fresh = rehearsal.fresh();
    Ok(plan)
}

/// Makes values that an earlier plan dropped and this one keeps available to all backward runs.
fn forget_drops(a: &mut Arena, rehearsal: &StepModel, drop: &[bool]) {
    for (value, drop) in rehearsal.values.iter().zip(drop) {
        let v = value.variable;
        if *drop || v == NONE || a.parent(v) == NONE {
            continue;
        }
        if a.evictor(a.parent(v)).is_none() {
            a.change_flags(v, flag::DROPPED, false);
        }
    }
}

/// A search over the values of a model, which are numbered in order of computation.
pub(crate) struct CheckpointSearch<'a> {
    /// The step for which values are chosen.
    rehearsal: &'a StepModel,
    /// Values that are always dropped: values that cost nothing, and values that the user marked.
    modest: Vec<bool>,
    /// Values to decide on: read by a gradient, or by functions that may run again.
    open: Vec<u32>,
    /// For each position between two functions, the bytes of the values that cross it.
    crossing: Vec<usize>,
    /// The number of simulations left to spend.
    tries: usize,
}

impl<'a> CheckpointSearch<'a> {
    /// A search over the values of a step that may be dropped.
    pub(crate) fn new(rehearsal: &'a StepModel) -> Self {
        let n = rehearsal.forward.len();
        let mut open: Vec<u32> = (0..rehearsal.values.len() as u32).collect();
        open.retain(|v| rehearsal.values[*v as usize].may_drop());
        open.sort_by_key(|v| rehearsal.values[*v as usize].producer);
        let mut changes = vec![0_isize; n + 2];
        for v in open.iter().map(|v| &rehearsal.values[*v as usize]) {
            if let (Some(from), Some(to)) = (v.producer, v.last) {
                changes[from as usize + 1] += v.bytes as isize;
                changes[to as usize + 1] -= v.bytes as isize;
            }
        }
        let mut at = 0;
        let crossing = changes.iter().map(|change| {
            at += change;
            at as usize
        });
        Self {
            crossing: crossing.collect(),
            modest: rehearsal.modest(),
            open,
            tries: (MOST_STEPS / (n + 1) / rehearsal.orders.len().max(1)).clamp(24, 2000),
            rehearsal,
        }
    }

    /// Simulates a step in which these values are dropped.
    fn judge(&self, drop: Vec<bool>) -> DropChoice {
        DropChoice { outcome: self.rehearsal.play(&drop), drop }
    }

    /// The choice with the least cost that fits in `bytes`.
    ///
    /// # Errors
    /// [`Error::Budget`] with the least memory of any choice that was found.
    pub(crate) fn within(&self, bytes: usize) -> Result<DropChoice> {
        let fits = |c: &DropChoice| c.outcome.peak <= bytes;
        let mut best = self.judge(self.modest.clone());
        if fits(&best) {
            return Ok(best);
        }
        for drop in self.candidates() {
            best = better(best, self.judge(drop), bytes);
        }
        let mut tries = self.tries / 2;
        if !fits(&best) {
            best = self.descend(best, &mut tries, |new, old| new.peak < old.peak);
        }
        if !fits(&best) {
            return Err(Error::Budget { least: best.outcome.peak, got: bytes });
        }
        let saves = |new: &StepCost, old: &StepCost| new.peak <= bytes && new.extra < old.extra;
        Ok(self.descend(best, &mut tries, saves))
    }

    /// Candidate sets of values to drop, coarse ones first.
    fn candidates(&self) -> impl Iterator<Item = Vec<bool>> {
        let needed = || self.open.iter().filter(|v| self.rehearsal.values[**v as usize].needed);
        let bytes = |v: &u32| self.rehearsal.values[*v as usize].bytes;
        let (all, largest) = (needed().map(bytes).sum::<usize>(), needed().map(bytes).max().unwrap_or(0));
        let mut lengths = Vec::new();
        let mut length = all as f64;
        while length >= largest.max(1) as f64 {
            lengths.push(length as usize);
            length *= SHORTER;
        }
        let mut prices: Vec<f64> = needed().map(|v| self.price(*v)).collect();
        prices.sort_by(f64::total_cmp);
        prices.dedup();
        let some = (1..=4).map(|n| prices.get(n * prices.len() / 5).copied().unwrap_or(f64::INFINITY));
        let mut limits: Vec<f64> = some.chain([f64::INFINITY]).collect();
        limits.dedup();
        limits.reverse();
        // Uses at most half of the tries, so that some are left to improve the best candidates.
        let apart = (2 * limits.len() * lengths.len()).div_ceil(self.tries).max(1);
        let lengths: Vec<usize> = lengths.into_iter().step_by(apart).collect();
        limits.into_iter().flat_map(move |limit| {
            let segments = lengths.clone().into_iter().map(|length| self.cuts(length));
            let whole = [vec![self.rehearsal.forward.len() as u32], Vec::new()];
            whole.into_iter().chain(segments).map(move |cuts| self.drop_between(&cuts, limit))
        })
    }

    /// The work to recompute a value, per byte.
    fn price(&self, v: u32) -> f64 {
        let value = &self.rehearsal.values[v as usize];
        let work = value.producer.map_or(0, |f| self.rehearsal.forward[f as usize].work);
        work as f64 / value.bytes.max(1) as f64
    }

    /// Positions of cuts in the forward run, about `length` bytes apart, where few bytes cross.
    fn cuts(&self, length: usize) -> Vec<u32> {
        let mut made = vec![0; self.rehearsal.forward.len()];
        for v in self.open.iter().map(|v| &self.rehearsal.values[*v as usize]).filter(|v| v.needed) {
            made[v.producer.unwrap_or(0) as usize] += v.bytes;
        }
        let (mut cuts, mut best, mut since, mut since_best) = (Vec::new(), None::<u32>, 0, 0);
        for (n, bytes) in made.into_iter().enumerate() {
            if since + bytes > length
                && let Some(cut) = best.take()
            {
                cuts.push(cut);
                (since, since_best) = (since_best, 0);
            }
            since += bytes;
            since_best += bytes;
            let here = n as u32 + 1;
            let narrow = |cut: u32| self.crossing[here as usize] <= self.crossing[cut as usize];
            if since * 2 >= length && best.is_none_or(narrow) {
                (best, since_best) = (Some(here), 0);
            }
        }
        cuts
    }

    /// Drops values between two cuts. Keeps values that cross a cut, come after the last one, or are expensive.
    fn drop_between(&self, cuts: &[u32], dear: f64) -> Vec<bool> {
        let mut drop = self.modest.clone();
        for v in &self.open {
            let value = &self.rehearsal.values[*v as usize];
            let (Some(from), Some(to)) = (value.producer, value.last) else { continue };
            let next = cuts.partition_point(|cut| *cut <= from);
            let crosses = cuts.get(next).is_some_and(|cut| *cut <= to);
            let after = next == cuts.len();
            let keep = crosses || (value.needed && (after || self.price(*v) >= dear));
            drop[*v as usize] = value.flagged || !keep;
        }
        drop
    }

    /// Flips one value after the other, the most expensive first, as long as the result is `better`.
    fn descend(
        &self,
        mut best: DropChoice,
        tries: &mut usize,
        better: impl Fn(&StepCost, &StepCost) -> bool,
    ) -> DropChoice {
        let mut order = self.open.clone();
        order.retain(|v| !self.rehearsal.values[*v as usize].flagged);
        order.sort_by(|v, w| self.price(*w).total_cmp(&self.price(*v)));
        loop {
            let mut changed = false;
            for v in &order {
                if *tries == 0 {
                    return best;
                }
                let mut drop = best.drop.clone();
                drop[*v as usize] ^= true;
                let choice = self.judge(drop);
                *tries -= 1;
                if better(&choice.outcome, &best.outcome) {
                    (best, changed) = (choice, true);
                }
            }
            if !changed {
                return best;
            }
        }
    }
}

/// The better of two choices: one that fits in `bytes`, then the one that costs less, then the smaller one.
fn better(a: DropChoice, b: DropChoice, bytes: usize) -> DropChoice {
    let rank = |c: &DropChoice| match c.outcome.peak <= bytes {
        true => (0, c.outcome.extra, c.outcome.peak),
        false => (1, c.outcome.peak as u64, 0),
    };
    if rank(&b) < rank(&a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Fate::{Dropped, Kept, Recomputed};
    use crate::graph::{Report, Variable, apply, arena, report};

    /// Bytes of a value of a chain.
    const SIZE: usize = 4 * 1000;

    /// A chain of elementwise operations on 1,000 elements.
    fn chain(names: &[&str]) -> Variable {
        let x = Variable::new([1000]).expect("a shape").with_need_grad(true);
        let mut h = x;
        for name in names {
            h = apply(name, &[&h], &[]).expect("fits").remove(0);
        }
        h
    }

    /// The least budget in bytes, which the error of a refused budget names.
    fn least(y: &Variable) -> usize {
        match report(y, Some(0), false) {
            Err(Error::Budget { least, .. }) => least,
            other => panic!("expected a budget of nothing to be refused, got {other:?}"),
        }
    }

    /// The report of a step within a budget that suffices.
    fn within(y: &Variable, bytes: usize) -> Report {
        report(y, Some(bytes), false).expect("within reach")
    }

    #[test]
    fn a_chain_needs_twice_the_root_of_its_length() {
        let y = chain(&["tanh"; 100]);
        assert_eq!(within(&y, usize::MAX).peak_clearing, 104 * SIZE);
        // The remaining bytes: the leaf and its gradient, the gradients on either side of a function, the result.
        assert!(least(&y) <= (2 * 10 + 5) * SIZE, "{} values", least(&y) / SIZE);
    }

    #[test]
    fn the_least_budget_suffices_and_a_byte_less_does_not() {
        for n in [1, 2, 3, 7, 30] {
            let y = chain(&vec!["sin"; n]);
            let least = least(&y);
            assert_eq!(within(&y, least).peak, Some(least));
            assert!(report(&y, Some(least - 1), false).is_err());
        }
    }

    #[test]
    fn more_memory_never_costs_more_work() {
        let y = chain(&["tanh"; 60]);
        let (low, high) = (least(&y), within(&y, usize::MAX).peak_clearing);
        let costs: Vec<f64> = (0..=8).map(|i| within(&y, low + (high - low) * i / 8).extra).collect();
        assert!(costs.is_sorted_by(|a, b| a >= b), "{costs:?}");
        assert!(costs[0] < 1.0 / 3.0 && costs[8] == 0.0, "{costs:?}");
    }

    #[test]
    fn values_that_no_gradient_reads_are_dropped_first() {
        // The gradient of `sin` reads only its input, the gradient of `identity` reads nothing.
        let y = chain(&["sin", "identity", "identity", "sin"]);
        let report = within(&y, least(&y).max(report(&y, None, false).expect("runs").peak_clearing));
        let fates: Vec<_> = report.steps.iter().map(|s| s.outputs[0].fate).collect();
        assert_eq!(fates, [Dropped, Dropped, Kept, Kept]);
        assert_eq!(report.extra, 0.0);
    }

    #[test]
    fn checkpoints_are_put_between_blocks_where_few_bytes_cross() {
        // Wide inside each block, narrow between blocks.
        let mut h = Variable::new([1000]).expect("a shape").with_need_grad(true);
        for _ in 0..9 {
            let branches: Vec<Variable> = ["sin", "tanh", "cos"]
                .iter()
                .map(|f| apply(f, &[&h], &[]).expect("fits").remove(0))
                .collect();
            h = apply("add_n", &branches.iter().collect::<Vec<_>>(), &[]).expect("fits").remove(0);
        }
        let (rehearsal, forward) = arena::with(|a| {
            let Ok(plan) = ForwardPlan::make(a, &[h.ix()], Policy::default(), |_, _| true) else {
                panic!("nothing is to be set up")
            };
            (rehearsal(a, &plan, &[h.ix()], Policy::default()), plan)
        });
        let cuts = CheckpointSearch::new(&rehearsal.expect("shapes fit")).cuts(6 * SIZE);
        assert!(cuts.len() >= 2, "{cuts:?}");
        assert!(cuts.iter().all(|cut| cut % 4 == 0), "{cuts:?} of {} functions", forward.order.len());
    }

    #[test]
    fn recompute_flags_of_users_are_respected_and_unchanged() {
        let y = chain(&["tanh"; 5]);
        let mut v = y.clone();
        for _ in 0..2 {
            v = v.parent().expect("has one").inputs().remove(0);
        }
        v.set_recompute(true);
        let unlimited = within(&y, usize::MAX);
        assert_eq!(unlimited.steps[2].outputs[0].fate, Recomputed);
        y.forward(&crate::graph::ForwardOptions { memory_budget: Some(least(&y)), ..Default::default() })
            .expect("runs");
        let mut flags = Vec::new();
        let mut at = y.clone();
        while let Some(f) = at.parent() {
            flags.push(at.recompute());
            at = f.inputs().remove(0);
        }
        assert_eq!(flags, [false, false, true, false, false]);
    }
}
