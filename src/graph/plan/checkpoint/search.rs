//! Keeping a training step within a budget of memory: which values to drop after their last forward reader and to
//! compute again for the backward run, so that this costs little time.
//!
//! A graph is cut into segments. What crosses a cut is kept, what lies between two cuts is dropped and restored as a
//! whole when the backward run gets there: on a chain of n equal values, sqrt(n) segments leave about 2 sqrt(n) values at
//! a time for one more forward run. On other graphs the cuts are put where little crosses; values that are dear for their
//! size may be kept, and memory to spare at the end is given to those that save most. Every choice is judged by a
//! rehearsal of the whole step, so that the promise does not rest on the rules by which choices are found.

use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::memory::release::Policy;
use crate::graph::plan::checkpoint::model::StepModel;
use crate::graph::plan::checkpoint::roots::rehearsal;
use crate::graph::plan::checkpoint::simulate::StepCost;
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::step::setup::Stop;
use crate::{Error, Result};

/// Steps of functions that are rehearsed while a choice is made, at most if a graph is not huge: about half a second.
const MOST_STEPS: usize = 2_000_000;

/// Lengths of segments that are tried, each shorter than the one before by this factor.
const SHORTER: f64 = 0.84;

/// What to drop, and what comes of it.
#[derive(Clone)]
pub(crate) struct DropChoice {
    /// By value of the rehearsal.
    pub(crate) drop: Vec<bool>,
    pub(crate) outcome: StepCost,
}

/// A plan of a forward run to `roots` that keeps it and the backward run after it within `bytes`.
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
            if a.variables[v].flags & flag::DROPPED == 0 {
                a.variables[v].flags |= flag::DROPPED;
                a.changed(v);
            }
        }
    }
    if rehearsal.backward.len() > 1 {
        forget_drops(a, &rehearsal, &choice.drop);
    }
    plan.fresh = rehearsal.fresh();
    Ok(plan)
}

/// Has what an earlier plan dropped and this one keeps stay for all backward runs.
fn forget_drops(a: &mut Arena, rehearsal: &StepModel, drop: &[bool]) {
    for (value, drop) in rehearsal.values.iter().zip(drop) {
        let v = value.variable;
        if *drop || v == NONE || a.variables[v].parent == NONE {
            continue;
        }
        let at_once = a.functions[a.variables[v].parent].evictor.is_some();
        if a.variables[v].flags & flag::DROPPED != 0 && !at_once {
            a.variables[v].flags &= !flag::DROPPED;
            a.changed(v);
        }
    }
}

/// Values by number, in the order in which they are computed, that are in question.
pub(crate) struct CheckpointSearch<'a> {
    rehearsal: &'a StepModel,
    /// What is dropped in any case: what costs nothing, and what the user says.
    modest: Vec<bool>,
    /// Values that are worth a thought: read by a gradient, or by functions that may run again.
    open: Vec<u32>,
    /// By place between two functions: bytes of the values that cross it.
    crossing: Vec<usize>,
    tries: usize,
}

impl<'a> CheckpointSearch<'a> {
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

    fn judge(&self, drop: Vec<bool>) -> DropChoice {
        DropChoice { outcome: self.rehearsal.play(&drop), drop }
    }

    /// The choice that keeps within `bytes` at the least cost.
    ///
    /// # Errors
    /// [`Error::Budget`] with the least memory that a choice was found for.
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

    /// Sets of values to drop, the coarse ones first.
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
        // Half of the tries at most, so that some are left to improve on the best of these.
        let apart = (2 * limits.len() * lengths.len()).div_ceil(self.tries).max(1);
        let lengths: Vec<usize> = lengths.into_iter().step_by(apart).collect();
        limits.into_iter().flat_map(move |limit| {
            let segments = lengths.clone().into_iter().map(|length| self.cuts(length));
            let whole = [vec![self.rehearsal.forward.len() as u32], Vec::new()];
            whole.into_iter().chain(segments).map(move |cuts| self.drop_between(&cuts, limit))
        })
    }

    /// Work to compute a value again, for each byte of it.
    fn price(&self, v: u32) -> f64 {
        let value = &self.rehearsal.values[v as usize];
        let work = value.producer.map_or(0, |f| self.rehearsal.forward[f as usize].work);
        work as f64 / value.bytes.max(1) as f64
    }

    /// Places to cut the forward run, so that about `length` bytes lie between two: where little crosses.
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

    /// Drops what lies between two cuts; keeps what crosses one, what comes after the last one, and what is dear.
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

    /// Changes one value after the other, the dearest first, as long as that is `better`.
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

/// The better of two: one that keeps within `bytes`, then the one that costs less, then the smaller one.
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

    fn chain(names: &[&str]) -> Variable {
        let x = Variable::new([1000]).expect("a shape").with_need_grad(true);
        let mut h = x;
        for name in names {
            h = apply(name, &[&h], &[]).expect("fits").remove(0);
        }
        h
    }

    fn least(y: &Variable) -> usize {
        match report(y, Some(0), false) {
            Err(Error::Budget { least, .. }) => least,
            other => panic!("expected a budget of nothing to be refused, got {other:?}"),
        }
    }

    fn within(y: &Variable, bytes: usize) -> Report {
        report(y, Some(bytes), false).expect("within reach")
    }

    #[test]
    fn a_chain_needs_twice_the_root_of_its_length() {
        let y = chain(&["tanh"; 100]);
        assert_eq!(within(&y, usize::MAX).peak_clearing, 104 * SIZE);
        // Beside them: the leaf and its gradient, the gradients on either side of a function, the result.
        assert!(least(&y) <= (2 * 10 + 5) * SIZE, "{} values", least(&y) / SIZE);
    }

    #[test]
    fn what_was_said_to_do_does() {
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
    fn what_no_gradient_reads_is_dropped_first() {
        // The gradient of `sin` reads its input only, that of `identity` reads nothing.
        let y = chain(&["sin", "identity", "identity", "sin"]);
        let report = within(&y, least(&y).max(report(&y, None, false).expect("runs").peak_clearing));
        let fates: Vec<_> = report.steps.iter().map(|s| s.outputs[0].fate).collect();
        assert_eq!(fates, [Dropped, Dropped, Kept, Kept]);
        assert_eq!(report.extra, 0.0);
    }

    #[test]
    fn cuts_go_where_little_crosses() {
        // Wide inside of each block, narrow between them.
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
        assert!(cuts.iter().all(|cut| cut % 4 == 0), "{cuts:?} of {} functions", forward.functions.len());
    }

    #[test]
    fn flags_of_the_user_stay_and_hold() {
        let y = chain(&["tanh"; 5]);
        let mut v = y.clone();
        for _ in 0..2 {
            v = v.parent().expect("has one").inputs().remove(0);
        }
        v.set_recompute(true);
        let roomy = within(&y, usize::MAX);
        assert_eq!(roomy.steps[2].outputs[0].fate, Recomputed);
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
