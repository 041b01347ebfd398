//! Gradients by rules on symbols, for operations without a backward kernel: executes the rule on arrays, or only
//! measures it.

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, Shape, Storage};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context::Precision;
use crate::graph::step;
use crate::graph::step::backward::{BackwardStep, DataOperand};
use crate::graph::step::forward::evaluate;
use crate::ops::contract::symbol::{Builder, build};
use crate::ops::{Op, Sym, Symbols};

/// Runs every function eagerly, on arrays.
struct EagerBuilder {
    /// The result of each node, by number.
    arrays: Vec<NdArray>,
    /// The precision in which functions compute.
    compute: Precision,
}

impl Builder for EagerBuilder {
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
pub(crate) fn backward_by_symbols(step: &mut BackwardStep) -> Result<()> {
    let mut eager = EagerBuilder { arrays: Vec::new(), compute: step.compute.of_rule(&step.op) };
    let mut add = |array: NdArray| {
        eager.arrays.push(array);
        Sym::Node(eager.arrays.len() as u32 - 1)
    };
    let mut symbol = |data: &DataOperand| {
        let shape = data.shape();
        // Data that the rule does not read has only a shape.
        let storage = data.read().map_or_else(|| Storage::new(shape.size()), |s| s.storage.clone());
        add(NdArray { shape: shape.clone(), storage })
    };
    let x: Vec<Sym> = step.x.iter().map(&mut symbol).collect();
    let y: Vec<Sym> = step.y.iter().map(&mut symbol).collect();
    let gy: Vec<Sym> =
        step.gy.iter().map(|s| add(NdArray { shape: s.shape.clone(), storage: s.storage.clone() })).collect();
    let wanted: Vec<bool> = step.gx.iter().map(Option::is_some).collect();
    let op = step.op.clone();
    let shapes: Vec<Shape> = step.x.iter().map(|x| x.shape().clone()).collect();
    let found = build(&mut eager, || -> Result<_> {
        let found = op.gradient(Symbols::new(&x, &y, &gy, &wanted))?;
        Ok(found.into_iter().zip(&shapes).map(|(g, shape)| g.map(|g| g.node(shape))).collect::<Vec<_>>())
    })??;
    for (sink, g) in step.gx.iter_mut().zip(found) {
        let (Some(sink), g) = (sink, g) else { continue };
        if sink.first && !sink.again {
            sink.slot.storage.zero()?;
        }
        if let Some(g) = g {
            let from = eager.arrays[g as usize].storage.access(step.compute.dtype(), Access::Read)?;
            step::backward::add_to(&mut sink.slot, from)?;
        }
    }
    Ok(())
}

/// Runs nothing, and measures the memory that an eager run would allocate.
struct MeasuringBuilder {
    /// The shape of each node, by number.
    shapes: Vec<Shape>,
    /// The precision in which functions would compute.
    compute: Precision,
    /// Bytes of all results.
    bytes: usize,
}

impl Builder for MeasuringBuilder {
    fn apply(&mut self, op: Op, x: &[u32]) -> Result<SmallVec<[u32; 1]>> {
        let shapes = {
            let x: SmallVec<[&Shape; 4]> = x.iter().map(|x| &self.shapes[*x as usize]).collect();
            op.shapes(&x)?
        };
        let first = self.shapes.len() as u32;
        for (o, shape) in shapes.into_iter().enumerate() {
            let shared = op.facts().shares_output(o, x.len());
            let dtype = op.output(o).unwrap_or(self.compute.stored());
            self.bytes += if shared { 0 } else { shape.size() * dtype.size() };
            self.shapes.push(shape);
        }
        Ok((first..self.shapes.len() as u32).collect())
    }
    fn shape(&self, v: u32) -> Shape {
        self.shapes[v as usize].clone()
    }
}

/// The temporary memory, in bytes, of the backward run of a function without a backward kernel. Zero if only the run
/// itself can tell.
pub(crate) fn temporary_bytes(step: &BackwardStep) -> usize {
    if step.op.facts().has_backward || step.op.on_arrays().is_some() || step.gx.iter().all(Option::is_none) {
        return 0;
    }
    let mut measured =
        MeasuringBuilder { shapes: Vec::new(), compute: step.compute.of_rule(&step.op), bytes: 0 };
    let mut symbol = |shape: &Shape| {
        measured.shapes.push(shape.clone());
        Sym::Node(measured.shapes.len() as u32 - 1)
    };
    let x: Vec<Sym> = step.x.iter().map(|x| symbol(x.shape())).collect();
    let y: Vec<Sym> = step.y.iter().map(|y| symbol(y.shape())).collect();
    let gy: Vec<Sym> = step.gy.iter().map(|slot| symbol(&slot.shape)).collect();
    let wanted: Vec<bool> = step.gx.iter().map(Option::is_some).collect();
    let built = build(&mut measured, || -> Result<()> {
        let found = step.op.gradient(Symbols::new(&x, &y, &gy, &wanted))?;
        for (g, x) in found.into_iter().zip(&step.x) {
            g.map(|g| g.node(x.shape()));
        }
        Ok(())
    });
    if matches!(built, Ok(Ok(()))) { measured.bytes } else { 0 }
}
