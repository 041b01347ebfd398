//! The instruction list of a plan, which runs execute and reports print.
//!
//! For several steps that run together, one joint instruction precedes the instructions of the single steps. If the
//! joint instruction succeeds, the run skips them, otherwise it executes them. The releases of a step follow it.

use std::fmt::Write;

use crate::array::Shape;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::forward::ForwardPlan;
use crate::ops::Op;

/// One action of a run. Steps and entries of the plan's lists are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Zeroes the gradient of an output without contributions.
    Zero { step: u32, output: u32 },
    /// Calls the hooks on the gradient of an output.
    Hooks { step: u32, at: u32 },
    /// Recomputes data that a step reads, if it was dropped.
    Restore { step: u32, at: u32 },
    /// Runs steps as one fused pass, and continues at `next`.
    Pass { at: u32, next: u32 },
    /// Runs steps as a chain on the output of the first, and continues at `next`.
    Chain { at: u32, next: u32 },
    /// Runs a step.
    Run { step: u32 },
    /// Clears an array.
    Release { at: u32 },
}

/// A list of instructions, and the joint ones whose `next` is not yet known.
struct Listing {
    /// The instructions so far.
    list: Vec<Instruction>,
    /// Joint instructions without a `next`: the position in the list, and the step at which they end.
    open: Vec<(usize, usize)>,
}

impl Listing {
    /// An empty list with capacity for this many instructions.
    fn of(instructions: usize) -> Self {
        Self { list: Vec::with_capacity(instructions), open: Vec::new() }
    }

    /// Ends the joint instructions whose steps all precede step `n`.
    fn reach(&mut self, n: usize) {
        let here = self.list.len() as u32;
        while let Some((start, _)) = self.open.pop_if(|(_, end)| *end <= n) {
            if let Instruction::Pass { next, .. } | Instruction::Chain { next, .. } = &mut self.list[start] {
                *next = here;
            }
        }
    }

    /// Begins a joint instruction for the steps up to `end`.
    fn join(&mut self, instruction: Instruction, end: usize) {
        self.open.push((self.list.len(), end));
        self.list.push(instruction);
    }

    /// Ends the list of instructions.
    fn finish(mut self) -> Vec<Instruction> {
        self.reach(usize::MAX);
        self.list
    }
}

impl ForwardPlan {
    /// Lists the current instructions.
    fn listed(&self) -> Vec<Instruction> {
        let mut listing = Listing::of(self.order.len() + self.clears.len());
        let mut passes = (0..).zip(self.passes.iter().flatten()).peekable();
        let mut chains = (0..).zip(&self.chains).peekable();
        let mut clears = (0..).zip(&self.clears).peekable();
        for n in 0..self.order.len() {
            listing.reach(n);
            if let Some((at, pass)) = passes.next_if(|(_, pass)| pass.steps.start == n) {
                listing.join(Instruction::Pass { at, next: 0 }, pass.steps.end);
            }
            if let Some((at, chain)) = chains.next_if(|(_, chain)| chain.steps.start == n) {
                listing.join(Instruction::Chain { at, next: 0 }, chain.steps.end);
            }
            let step = n as u32;
            listing.list.push(Instruction::Run { step });
            while let Some((at, _)) = clears.next_if(|(_, (after, _))| *after == step) {
                listing.list.push(Instruction::Release { at });
            }
        }
        listing.finish()
    }

    /// Lists the instructions if steps were fused or separated since the last time.
    pub(crate) fn list(&mut self) {
        if self.instructions.is_empty() {
            debug_assert_eq!(self.steps.len(), self.order.len(), "a plan has a step for each function");
            self.instructions = self.listed();
            print_made(|| self.text());
        }
    }

    /// The instructions as text.
    pub(crate) fn text(&self) -> String {
        let mut text = Text::new("forward", self.order.len());
        for (at, instruction) in self.listed().into_iter().enumerate() {
            match instruction {
                Instruction::Pass { at: pass, next } => {
                    let pass = self.passes.iter().flatten().nth(pass as usize);
                    text.joint("pass", pass.map(|pass| pass.steps.clone()), next);
                }
                Instruction::Chain { at: chain, next } => {
                    text.joint(
                        "chain",
                        self.chains.get(chain as usize).map(|chain| chain.steps.clone()),
                        next,
                    );
                }
                Instruction::Run { step } => {
                    let run = &self.steps[step as usize];
                    let (x, y) = (run.x.iter().map(|x| &x.shape), run.y.iter().map(|y| &y.shape));
                    text.run(at, step, &run.op, x, y);
                }
                Instruction::Release { at: clear } => {
                    let (step, input) = self.clears[clear as usize];
                    let shape =
                        self.steps.get(step as usize).map(|step| step.x[input as usize].shape.to_string());
                    text.line(at, &format!("release  input {input} {}", shape.unwrap_or_default()));
                }
                _ => {}
            }
        }
        text.lines
    }
}

impl BackwardPlan {
    /// Lists the current instructions.
    fn listed(&self) -> Vec<Instruction> {
        let mut listing = Listing::of(self.order.len() + self.clears.len() + self.zeroed.len());
        let mut zeroed = self.zeroed.iter().peekable();
        let mut hooked = (0..).zip(&self.hooked.outputs).peekable();
        let mut restored = (0..).zip(&self.restored).peekable();
        let mut passes = (0..).zip(self.passes.iter().flatten()).peekable();
        let mut clears = (0..).zip(&self.clears).peekable();
        for n in 0..self.order.len() {
            let step = n as u32;
            listing.reach(n);
            while let Some((_, output)) = zeroed.next_if(|(at, _)| *at == step) {
                listing.list.push(Instruction::Zero { step, output: *output });
            }
            while let Some((at, _)) = hooked.next_if(|(_, output)| output.step == step) {
                listing.list.push(Instruction::Hooks { step, at });
            }
            while let Some((at, _)) = restored.next_if(|(_, (at, ..))| *at == step) {
                listing.list.push(Instruction::Restore { step, at });
            }
            if let Some((at, pass)) = passes.next_if(|(_, pass)| pass.steps.start == n) {
                listing.join(Instruction::Pass { at, next: 0 }, pass.steps.end);
            }
            listing.list.push(Instruction::Run { step });
            while let Some((at, _)) = clears.next_if(|(_, clear)| clear.step == step) {
                listing.list.push(Instruction::Release { at });
            }
        }
        listing.finish()
    }

    /// Lists the instructions if steps were fused or separated since the last time.
    pub(crate) fn list(&mut self) {
        if self.instructions.is_empty() {
            debug_assert_eq!(self.steps.len(), self.order.len(), "a plan has a step for each function");
            self.instructions = self.listed();
            print_made(|| self.text());
        }
    }

    /// The instructions as text.
    pub(crate) fn text(&self) -> String {
        let mut text = Text::new("backward", self.order.len());
        for (at, instruction) in self.listed().into_iter().enumerate() {
            match instruction {
                Instruction::Zero { output, .. } => {
                    text.line(at, &format!("zero     gradient of output {output}"));
                }
                Instruction::Hooks { .. } => text.line(at, "hooks    on the gradient of an output"),
                Instruction::Restore { .. } => text.line(at, "restore  data, if it was dropped"),
                Instruction::Pass { at: pass, next } => {
                    let pass = self.passes.iter().flatten().nth(pass as usize);
                    text.joint("pass", pass.map(|pass| pass.steps.clone()), next);
                }
                Instruction::Run { step } => {
                    let run = &self.steps[step as usize];
                    let gx = run.gx.iter().flatten().map(|sink| &sink.slot.shape);
                    text.run(at, step, &run.op, run.gy.iter().map(|gy| &gy.shape), gx);
                }
                Instruction::Release { at: clear } => {
                    let clear = &self.clears[clear as usize];
                    let what = if clear.place.is_grad { "gradient" } else { "data" };
                    let elements = clear.place.storage.len();
                    let unless = if clear.waiting.is_none() { "" } else { ", unless somebody waits for it" };
                    text.line(at, &format!("release  {what} of {elements} elements{unless}"));
                }
                Instruction::Chain { .. } => {}
            }
        }
        text.lines
    }
}

/// Text with one instruction per line. Instructions that a joint one may skip are indented.
struct Text {
    /// The text so far.
    lines: String,
    /// The instruction up to which lines are indented.
    joint: u32,
}

impl Text {
    /// Begins a text with the number of functions.
    fn new(run: &str, functions: usize) -> Self {
        let s = if functions == 1 { "" } else { "s" };
        Self { lines: format!("{run}: {functions} function{s}"), joint: 0 }
    }

    /// Adds a line, indented if it belongs to a fused pass.
    fn line(&mut self, at: usize, line: &str) {
        let indent = if at < self.joint as usize { "    " } else { "  " };
        self.lines.extend(["\n", indent, line.trim_end()]);
    }

    /// Adds the head of a fused pass. Lines of instructions before `next` are indented below it.
    fn joint(&mut self, how: &str, steps: Option<std::ops::Range<usize>>, next: u32) {
        let steps = steps.unwrap_or_default();
        self.line(usize::MAX, &format!("{how:<8} {}-{}, or one by one:", steps.start + 1, steps.end));
        self.joint = next;
    }

    /// Adds a line for a step: number, operation and shapes.
    fn run<'a>(
        &mut self,
        at: usize,
        step: u32,
        op: &Op,
        from: impl Iterator<Item = &'a Shape>,
        to: impl Iterator<Item = &'a Shape>,
    ) {
        let mut line = format!("run      {} {}", step + 1, op.type_name());
        from.for_each(|shape| _ = write!(line, " {shape}"));
        line.push_str(" ->");
        to.for_each(|shape| _ = write!(line, " {shape}"));
        self.line(at, &line);
    }
}

/// Prints a newly listed plan if the environment requests it.
fn print_made(text: impl Fn() -> String) {
    if crate::graph::settings::modes::plan_is_printed() {
        eprintln!("{}", text());
    }
}
