//! Simulates a training step with sizes instead of values: peak memory and repeated work if some values are dropped
//! after their last forward reader. Follows the rules of `lifetime::rules`, as runs do.

use crate::array::DType;
use crate::graph::budget::r#static::model::{StepModel, Touch};
use crate::graph::lifetime::rules::{self, DroppedValues, Policy};

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepCost {
    /// Peak memory in bytes.
    pub(crate) peak: usize,
    /// The work of functions that run again.
    pub(crate) extra: u64,
    /// Bytes in use after each function of the forward run.
    pub(crate) live: Vec<usize>,
    /// The number of times that each function of the forward run runs again.
    pub(crate) again: Vec<u32>,
}

impl StepCost {
    /// The worse of both, for steps with the same forward run.
    fn or(self, other: Self) -> Self {
        let (peak, extra) = (self.peak.max(other.peak), self.extra.max(other.extra));
        Self { peak, extra, ..other }
    }
}

impl StepModel {
    /// Simulates the step with these values dropped after their last forward reader.
    pub(crate) fn play(&self, drop: &[bool]) -> StepCost {
        let mut stage = Simulation::new(self);
        for (n, act) in self.forward.iter().enumerate() {
            stage.step(&act.touches, act.temporary);
            for v in self.ends[n].iter().filter(|v| drop[**v as usize]) {
                stage.clear(self.values[*v as usize].block);
            }
            stage.outcome.live.push(stage.live);
        }
        let Some((last, others)) = self.orders.split_last() else { return stage.outcome };
        let mut worst = StepCost::default();
        for order in others {
            let mut stage = stage.clone();
            stage.backward(order, drop);
            worst = worst.or(stage.outcome);
        }
        stage.backward(last, drop);
        worst.or(stage.outcome)
    }
}

/// The state of a block during a simulation.
#[derive(Clone, Copy, Default)]
struct SimulatedValue {
    /// The type of the elements. None if they are not in memory.
    head: Option<DType>,
    /// Copies in other types, one bit each.
    casts: u16,
    /// True if it was cleared during the simulation.
    cleared: bool,
}

/// The state of memory during a simulation.
#[derive(Clone)]
struct Simulation<'a> {
    /// The step that is simulated.
    all: &'a StepModel,
    /// The state of each block, by number.
    held: Vec<SimulatedValue>,
    /// Bytes in use.
    live: usize,
    /// For each value, the number of restored functions that read it.
    visits: Vec<u32>,
    /// For each function, the traversal that last found it.
    marks: Vec<u32>,
    /// The number of the current traversal.
    walk: u32,
    /// The cost so far.
    outcome: StepCost,
}

impl<'a> Simulation<'a> {
    /// The state before a step: only lasting values are in memory.
    fn new(all: &'a StepModel) -> Self {
        let held = all
            .blocks
            .iter()
            .map(|b| SimulatedValue { head: b.lasting, ..SimulatedValue::default() })
            .collect();
        let live = all.blocks.iter().filter_map(|b| Some(b.storage.len() * b.lasting?.size())).sum();
        Self {
            all,
            held,
            live,
            visits: vec![0; all.values.len()],
            marks: vec![0; all.forward.len()],
            walk: 0,
            outcome: StepCost { peak: live, again: vec![0; all.forward.len()], ..StepCost::default() },
        }
    }

    /// Simulates the backward runs.
    fn backward(&mut self, order: &[usize], drop: &[bool]) {
        let mut done = 0;
        for run in order {
            self.visits.fill(0);
            for act in &self.all.backward[*run] {
                for v in &act.reads {
                    self.restore(*v);
                }
                self.step(&act.touches, act.temporary);
                for cleared in act.clears.iter().filter(|cleared| cleared.may_go(done, drop)) {
                    self.clear(cleared.block);
                }
            }
            done |= 1_u64.checked_shl(*run as u32).unwrap_or(0);
        }
    }

    /// Bytes of a block now: its elements and its copies in other types.
    fn bytes(&self, block: u32) -> usize {
        let SimulatedValue { head, casts, .. } = self.held[block as usize];
        let casts = DType::ALL.into_iter().filter(|d| casts >> *d as u16 & 1 == 1);
        self.all.blocks[block as usize].storage.len()
            * head.into_iter().chain(casts).map(DType::size).sum::<usize>()
    }

    /// Changes a block and keeps the sum of live bytes.
    fn change(&mut self, block: u32, change: impl FnOnce(&mut SimulatedValue)) {
        self.live -= self.bytes(block);
        change(&mut self.held[block as usize]);
        self.live += self.bytes(block);
    }

    /// Clears a block.
    fn clear(&mut self, block: u32) {
        self.change(block, |held| *held = SimulatedValue { cleared: true, ..SimulatedValue::default() });
    }

    /// Runs a step: its arrays come into memory in these types, and the peak grows if they need more.
    fn step(&mut self, touches: &[Touch], temporary: usize) {
        for Touch { block, dtype, write } in touches.iter().copied() {
            let held = self.held[block as usize];
            if held.head == Some(dtype) && held.casts == 0 {
                continue;
            }
            self.change(block, |held| match held.head {
                Some(head) if !write && head != dtype => held.casts |= 1 << dtype as u16,
                Some(_) if !write => {}
                _ => *held = SimulatedValue { head: Some(dtype), ..SimulatedValue::default() },
            });
        }
        self.outcome.peak = self.outcome.peak.max(self.live + temporary);
    }

    /// True if the value was cleared.
    fn is_cleared(&self, v: u32) -> bool {
        self.held[self.all.values[v as usize].block as usize].cleared
    }

    /// Runs the functions again that a cleared value needs, as [`restore`](crate::graph::lifetime::restore::restore)
    /// does.
    fn restore(&mut self, v: u32) {
        let Some(producer) = self.all.values[v as usize].producer else { return };
        if !self.is_cleared(v) {
            return;
        }
        let all = self.all;
        self.walk += 1;
        for f in rules::restore_order(self, [producer]) {
            let act = &all.forward[f as usize];
            self.step(&act.touches, act.temporary);
            self.outcome.extra += act.work;
            self.outcome.again[f as usize] += 1;
            for input in &act.inputs {
                let value = &all.values[*input as usize];
                self.visits[*input as usize] += 1;
                let is_last = rules::is_last_use(self.visits[*input as usize], value.uses);
                if is_last && Policy::RESTORING.clears(value.facts()) {
                    self.clear(value.block);
                }
            }
        }
    }
}

impl DroppedValues for Simulation<'_> {
    fn n_inputs(&self, f: u32) -> usize {
        self.all.forward[f as usize].inputs.len()
    }

    fn producer(&self, f: u32, i: usize) -> Option<u32> {
        self.all.values[self.all.forward[f as usize].inputs[i] as usize].producer
    }

    fn has_dropped(&self, f: u32) -> bool {
        self.all.forward[f as usize].outputs.iter().any(|o| self.is_cleared(*o))
    }

    fn find(&mut self, f: u32) -> bool {
        std::mem::replace(&mut self.marks[f as usize], self.walk) != self.walk
    }
}
