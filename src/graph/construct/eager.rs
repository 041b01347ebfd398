//! The fast paths of eager functions.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, DType, InputCache, RunGuard, Shape, Storage, VersionedFingerprint};
use crate::graph::arena::{self, Arena};
use crate::graph::construct::node::{Outputs, build_shaped};
use crate::graph::handles::variable::Variable;
use crate::graph::settings::context::{self, Precision};
use crate::graph::settings::modes::Modes;
use crate::graph::step::operand::ProvenancePtr;
use crate::kernels::stop;
use crate::ops::{Call, Loops, Memory, Op, Part};

/// The most elements of a function that [`run_loop`] runs.
const SMALL: usize = 1024;

/// Builds and runs an elementwise function of few elements, whose inputs have one shape and are in memory. Returns
/// false, and builds nothing, if it is none.
pub(crate) fn run_loop(outputs: &mut Outputs, op: &Op, inputs: &[&Variable], modes: &Modes) -> Result<bool> {
    let compute = context::precision(modes.context);
    let dtype = compute.dtype();
    let in_one_type = dtype == compute.stored() && op.output(0).is_none_or(|own| own == dtype);
    if !in_one_type || op.facts().keeps_shape_of != inputs.len() || inputs.len() > Part::NOTHING.x.len() {
        return Ok(false);
    }
    let Some(loops) = op.loops(compute == Precision::Double) else { return Ok(false) };
    let _guard = RunGuard::new();
    let Some(part) = arena::with(|a| build_loop(outputs, a, modes, op, inputs, dtype))? else {
        return Ok(false);
    };
    // It saves no state and cannot be stopped.
    EagerKernel::Loop(loops, part).run()?;
    Ok(true)
}

/// Builds a function for [`run_loop`], and returns the arrays of its loop.
#[inline(always)]
fn build_loop(
    outputs: &mut Outputs,
    a: &mut Arena,
    modes: &Modes,
    op: &Op,
    inputs: &[&Variable],
    dtype: DType,
) -> Result<Option<Part>> {
    let (mut part, mut fingerprints) = (Part::NOTHING, [VersionedFingerprint::NONE; 2]);
    let mut shape: Option<&Shape> = None;
    for (i, v) in inputs.iter().enumerate() {
        let tensor = a.tensor(v.ix());
        let Some(data) = a.existing_data(tensor) else { return Ok(None) };
        let Some(x) = data.at(dtype, Access::Read) else { return Ok(None) };
        let own = a.shape(tensor);
        if !own.is_same(shape.unwrap_or(own)) {
            return Ok(None);
        }
        (part.x[i], part.n, fingerprints[i]) = (x, data.len(), data.versioned_fingerprint());
        shape = Some(own);
    }
    let Some(shape) = shape.filter(|_| (1..=SMALL).contains(&part.n)).cloned() else { return Ok(None) };
    let (storage, y) = Storage::to_write(part.n, dtype)?;
    part.y = y;
    build_shaped(outputs, a, modes, op, inputs, &[], std::slice::from_ref(&shape))?;
    let Some(output) = outputs.first() else { return Ok(None) };
    let provenance = a.begin_eager(a.parent(output.ix()));
    let x = provenance.save_inputs(fingerprints.into_iter().take(inputs.len()), false);
    provenance.stamp_outputs(x, 0, std::iter::once(&*storage));
    a.set_new_data(a.tensor(output.ix()), storage);
    Ok(Some(part))
}

/// An eager function and the operands of its kernel. Only for functions that compute outputs from inputs, whose
/// elements must be in memory in the type in which the kernel reads them. All others become a
/// [`ForwardStep`](crate::graph::step::forward::ForwardStep).
#[derive(Default)]
pub(crate) struct EagerRun {
    /// Address and shape of each input.
    x: SmallVec<[(*mut u8, Shape); 3]>,
    /// Address and shape of each output.
    y: SmallVec<[(*mut u8, Shape); 1]>,
    /// Where the operation saves what its gradient reads. None if nothing is saved.
    provenance: Option<ProvenancePtr>,
    /// The input from which the operation caches derived data.
    keeps: Option<(usize, Arc<Storage>)>,
    /// The parameters of that input.
    parameters: Vec<(usize, Arc<Storage>)>,
    /// True if the kernel computes in `f64`.
    double: bool,
    /// The number of elements it reads and writes.
    pub(crate) touched: usize,
}

// SAFETY: the run guard keeps the elements alive, and the handles on the outputs keep the function alive, until it
// has run.
unsafe impl Send for EagerRun {}

impl EagerRun {
    /// Builds the function, allocates its outputs and adds them to an empty list. Returns false, and builds nothing, if
    /// it must become a [`ForwardStep`](crate::graph::step::forward::ForwardStep).
    pub(crate) fn build(
        &mut self,
        outputs: &mut Outputs,
        a: &mut Arena,
        modes: &Modes,
        op: &Op,
        inputs: &[&Variable],
    ) -> Result<bool> {
        let compute = context::precision(modes.context);
        let dtype = compute.dtype();
        if dtype != compute.stored() {
            return Ok(false);
        }
        let cached_input = op.facts().cached_input;
        let mut fingerprints: SmallVec<[VersionedFingerprint; 3]> = SmallVec::new();
        let mut given: SmallVec<[&Shape; 4]> = SmallVec::new();
        for (i, v) in inputs.iter().enumerate() {
            let tensor = a.tensor(v.ix());
            let Some(data) = a.existing_data(tensor) else { return Ok(false) };
            let Some(ptr) = data.at(dtype, Access::Read) else { return Ok(false) };
            self.touched += data.len();
            if cached_input == Some(i) {
                self.keeps = Some((i, data.clone()));
            } else if cached_input.is_some_and(|from| from < i && i <= from + op.facts().cached_parameters) {
                self.parameters.push((i, data.clone()));
            }
            self.x.push((ptr, a.shape(tensor).clone()));
            fingerprints.push(data.versioned_fingerprint());
            given.push(a.shape(tensor));
        }
        let made = op.shapes_by(&given, None);
        drop(given);
        let Ok(shapes) = &made else { return made.map(|_| false) };
        let mut data: SmallVec<[Arc<Storage>; 1]> = SmallVec::new();
        for (o, shape) in shapes.iter().enumerate() {
            let own = op.output(o).unwrap_or(dtype);
            let (storage, ptr) = Storage::to_write(shape.checked_size()?, own)?;
            self.touched += storage.len();
            data.push(storage);
            self.y.push((ptr, shape.clone()));
        }
        build_shaped(outputs, a, modes, op, inputs, &[], shapes)?;
        let Some(first) = outputs.first() else { return Ok(false) };
        let f = a.parent(first.ix());
        let provenance = a.begin_eager(f);
        let inputs = provenance.save_inputs(fingerprints.iter().copied(), false);
        provenance.stamp_outputs(inputs, 0, data.iter().map(|y| &**y));
        self.provenance = Some(ProvenancePtr::to(provenance));
        self.double = compute == Precision::Double;
        while let Some(storage) = data.pop() {
            a.set_new_data(a.tensor(outputs[data.len()].ix()), storage);
        }
        Ok(true)
    }

    /// Runs the operation on the arrays and stores its state.
    pub(crate) fn forward(&mut self, op: &Op) -> Result<()> {
        let (mut x, mut y): (SmallVec<[Memory<'_>; 5]>, SmallVec<[Memory<'_>; 2]>) = Default::default();
        self.x.iter().for_each(|(ptr, shape)| x.push(Memory { ptr: *ptr, shape }));
        self.y.iter().for_each(|(ptr, shape)| y.push(Memory { ptr: *ptr, shape }));
        let Some(provenance) = &mut self.provenance else { return Ok(()) };
        let state = &mut provenance.state;
        let parameters = self.parameters.iter().map(|(i, data)| (&**data, self.x[*i].0.cast_const()));
        let input_cache = self.keeps.as_ref().map(|(i, data)| {
            InputCache::new(data, self.x[*i].0).with_parameters(InputCache::parameters(parameters))
        });
        let call = Call { input_cache, ..Call::new(&x, &y, state, self.double) };
        stop::guarded(|| EagerKernel::Call(op, call).run())
    }
}

/// The kernel of an eager function, with its arrays.
#[allow(clippy::large_enum_variant)] // used at once
enum EagerKernel<'a> {
    /// A loop over arrays of one shape.
    Loop(Loops, Part),
    /// An operation, with arrays of the shapes that it requires.
    Call(&'a Op, Call<'a>),
}

impl EagerKernel<'_> {
    /// Runs the kernel.
    #[inline(always)]
    fn run(self) -> Result<()> {
        // SAFETY: the arrays were made for this kernel, and the run guard keeps them allocated.
        unsafe {
            match self {
                Self::Loop(loops, part) => {
                    loops.forward(&part);
                    Ok(())
                }
                Self::Call(op, call) => op.forward(call),
            }
        }
    }
}
