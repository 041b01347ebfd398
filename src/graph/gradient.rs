//! Gradients as graphs: the rules of the operations, written on symbols, become functions that can be differentiated
//! again. One table serves `grad` to any order and every operation that has no backward kernel of its own.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use super::arena::{self, Ix, NONE};
use super::back_step::{self, BackStep};
use super::connect::connect;
use super::execute::{self, evaluate};
use super::mode::Compute;
use super::order;
use super::{NdArray, Variable};
use crate::array::{Access, Shape, Storage};
use crate::ops::symbol::{Builder, build};
use crate::ops::{Kind, Op, Sym, Symbols};
use crate::{Error, Result};

/// Runs every function at once, on arrays.
struct Eager {
    arrays: Vec<NdArray>,
    compute: Compute,
}

impl Builder for Eager {
    fn apply(&mut self, op: Op, x: &[u32]) -> Result<SmallVec<[u32; 1]>> {
        let x: SmallVec<[NdArray; 4]> = x.iter().map(|x| self.arrays[*x as usize].clone()).collect();
        let first = self.arrays.len() as u32;
        self.arrays.extend(evaluate(&op, &x, self.compute)?);
        Ok((first..self.arrays.len() as u32).collect())
    }
    fn shape(&self, v: u32) -> Shape {
        self.arrays[v as usize].shape.clone()
    }
}

/// Runs a function backward by its rule on symbols.
pub(super) fn backward_by_symbols(step: &mut BackStep) -> Result<()> {
    let mut eager = Eager { arrays: Vec::new(), compute: step.compute };
    let mut add = |array: NdArray| {
        eager.arrays.push(array);
        Sym::Node(eager.arrays.len() as u32 - 1)
    };
    let mut symbol = |(shape, slot): &(Shape, Option<execute::Slot>)| {
        // What the rule does not read is there by its shape alone.
        let storage = slot.as_ref().map_or_else(|| Storage::new(shape.size()), |s| s.storage.clone());
        add(NdArray { shape: shape.clone(), storage })
    };
    let x: Vec<Sym> = step.x.iter().map(&mut symbol).collect();
    let y: Vec<Sym> = step.y.iter().map(&mut symbol).collect();
    let gy: Vec<Sym> =
        step.gy.iter().map(|s| add(NdArray { shape: s.shape.clone(), storage: s.storage.clone() })).collect();
    let wanted: Vec<bool> = step.gx.iter().map(Option::is_some).collect();
    let op = step.op.clone();
    let shapes: Vec<Shape> = step.x.iter().map(|(shape, _)| shape.clone()).collect();
    let found = build(&mut eager, || -> Result<_> {
        let found = op.gradient(Symbols::new(&x, &y, &gy, &wanted))?;
        Ok(found.into_iter().zip(&shapes).map(|(g, shape)| g.map(|g| g.node(shape))).collect::<Vec<_>>())
    })??;
    for (sink, g) in step.gx.iter_mut().zip(found) {
        let (Some(sink), g) = (sink, g) else { continue };
        if sink.first && !sink.again {
            sink.slot.storage.zero();
        }
        if let Some(g) = g {
            let from = eager.arrays[g as usize].storage.access(step.compute.dtype(), Access::Read)?;
            back_step::add_to(&mut sink.slot, from)?;
        }
    }
    Ok(())
}

/// Builds on the graph of variables.
#[derive(Default)]
struct OnGraph(Vec<Variable>);

impl OnGraph {
    fn add(&mut self, v: Variable) -> Sym {
        self.0.push(v);
        Sym::Node(self.0.len() as u32 - 1)
    }
}

impl Builder for OnGraph {
    fn apply(&mut self, op: Op, x: &[u32]) -> Result<SmallVec<[u32; 1]>> {
        let x: SmallVec<[&Variable; 4]> = x.iter().map(|x| &self.0[*x as usize]).collect();
        let y = connect(op, &x, &[])?;
        drop(x);
        let first = self.0.len() as u32;
        self.0.extend(y);
        Ok((first..self.0.len() as u32).collect())
    }
    fn shape(&self, v: u32) -> Shape {
        self.0[v as usize].shape()
    }
}

/// A function on the way of a gradient: what it is made of.
struct Node {
    op: Op,
    inputs: Vec<(Variable, bool)>,
    outputs: Vec<Variable>,
}

/// Gradients of `outputs` by `inputs` as variables of the graph, which can be differentiated again. `grad_outputs` are
/// the gradients to start from. `None` is returned for an input that no output depends on.
///
/// # Errors
/// [`Error::Shape`] when a gradient to start from does not fit; [`Error::Graph`] when an operation has no rule.
pub fn grad(
    outputs: &[&Variable],
    inputs: &[&Variable],
    grad_outputs: &[Variable],
) -> Result<Vec<Option<Variable>>> {
    for (y, g) in outputs.iter().zip(grad_outputs) {
        let shape = y.shape();
        if g.shape() != shape {
            return Err(Error::shape(
                "grad",
                format!("a gradient of shape {shape} for the output"),
                [&g.shape()],
            ));
        }
    }
    let wanted: HashSet<Ix> = inputs.iter().map(|v| v.core_ix()).collect();
    let nodes = nodes_between(outputs, &wanted);
    let mut graph = OnGraph::default();
    let mut total: HashMap<Ix, Sym> = HashMap::new();
    let mut seeds: Vec<(Ix, Sym)> = Vec::new();
    for (y, g) in outputs.iter().zip(grad_outputs) {
        let g = graph.add(g.clone());
        seeds.push((y.core_ix(), g));
    }
    build(&mut graph, || {
        for (core, g) in &seeds {
            let sum = total.get(core).map_or(*g, |t| *t + *g);
            total.insert(*core, sum);
        }
    })?;
    for node in nodes {
        let cores: Vec<Ix> = node.outputs.iter().map(Variable::core_ix).collect();
        if cores.iter().all(|core| !total.contains_key(core)) {
            continue;
        }
        let flags: Vec<bool> = node.inputs.iter().map(|(_, wanted)| *wanted).collect();
        let x: Vec<Sym> = node.inputs.iter().map(|(v, _)| graph.add(v.clone())).collect();
        let y: Vec<Sym> = node.outputs.iter().map(|v| graph.add(v.clone())).collect();
        let shapes: Vec<Shape> = node.outputs.iter().map(Variable::shape).collect();
        let input_cores: Vec<Ix> = node.inputs.iter().map(|(v, _)| v.core_ix()).collect();
        build(&mut graph, || -> Result<()> {
            let zero = Sym::Const(0.0);
            let gy: Vec<Sym> = cores
                .iter()
                .zip(&shapes)
                .map(|(core, shape)| total.get(core).copied().unwrap_or(zero).broadcast(shape))
                .collect();
            let found = node.op.gradient(Symbols::new(&x, &y, &gy, &flags))?;
            for (i, g) in found.into_iter().enumerate() {
                let (Some(g), true) = (g, flags[i]) else { continue };
                let sum = total.get(&input_cores[i]).map_or(g, |t| *t + g);
                total.insert(input_cores[i], sum);
            }
            Ok(())
        })??;
    }
    let found = build(&mut graph, || {
        let node = |v: &&Variable| total.get(&v.core_ix()).map(|g| g.node(&v.shape()));
        inputs.iter().map(node).collect::<Vec<_>>()
    })?;
    Ok(found.into_iter().map(|g| g.map(|g| graph.0[g as usize].clone())).collect())
}

/// The functions between `outputs` and the pairs in `wanted`, by descending rank, with the inputs on the way marked.
fn nodes_between(outputs: &[&Variable], wanted: &HashSet<Ix>) -> Vec<Node> {
    arena::with(|a| {
        let roots: Vec<Ix> = outputs.iter().map(|v| v.ix()).collect();
        let order = order::depth_first(a, &roots, |a, f| a.functions[f].need_grad);
        let mut reaches: HashMap<Ix, u32> = HashMap::new();
        let mut found = Vec::new();
        for f in order {
            let mut rank = 0;
            let mut flags = Vec::new();
            for (i, v) in a.functions[f].inputs.iter().enumerate() {
                let slot = &a.variables[*v];
                let above = if slot.parent == NONE { None } else { reaches.get(&slot.parent).copied() };
                rank = rank.max(above.unwrap_or(0));
                let on_way = above.is_some() || wanted.contains(&slot.core);
                flags.push(on_way && a.need_grad(*v) && a.op(f).kind(i) != Kind::index);
            }
            if flags.iter().any(|on_way| *on_way) {
                reaches.insert(f, rank + 1);
                found.push((rank + 1, f, flags));
            }
        }
        found.sort_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
        let node = |(_, f, flags): (u32, Ix, Vec<bool>)| {
            let inputs = a.functions[f].inputs.clone();
            let handle = |v: Ix| {
                a.variables[v].count += 1;
                Variable::adopt(a, v)
            };
            let inputs = inputs.into_iter().map(handle).zip(flags).collect();
            let n = a.functions[f].outputs.len();
            let outputs = (0..n).map(|o| {
                let v = a.output(f, o);
                Variable::adopt(a, v)
            });
            let outputs = outputs.collect();
            Node { op: a.op(f).clone(), inputs, outputs }
        };
        found.into_iter().map(node).collect()
    })
}
