//! The fast path of eager functions.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, InputCache, Shape, Storage, VersionedFingerprint};
use crate::graph::arena::Arena;
use crate::graph::construct::node::{Outputs, build_shaped};
use crate::graph::handles::variable::Variable;
use crate::graph::settings::context::{self, Precision};
use crate::graph::settings::modes::Modes;
use crate::graph::step::operand::ProvenancePtr;
use crate::kernels::stop;
use crate::ops::{Call, Memory, Op};

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
    /// True if the kernel computes in `f64`.
    double: bool,
    /// The number of elements it reads and writes.
    pub(crate) touched: usize,
}

// SAFETY: the run guard keeps the elements alive, and the handles on the outputs keep the function alive, until it
// has run.
unsafe impl Send for EagerRun {}

impl EagerRun {
    /// Builds the function and allocates its outputs. Returns None, and builds nothing, if it must become a
    /// [`ForwardStep`](crate::graph::step::forward::ForwardStep).
    pub(crate) fn build(
        &mut self,
        a: &mut Arena,
        modes: Modes,
        op: &Op,
        inputs: &[&Variable],
    ) -> Result<Outputs> {
        let compute = context::precision(modes.context);
        let dtype = compute.dtype();
        if dtype != compute.stored() {
            return Ok(Outputs::new());
        }
        let cached_input = op.facts().cached_input;
        let mut fingerprints: SmallVec<[VersionedFingerprint; 3]> = SmallVec::new();
        let mut given: SmallVec<[&Shape; 4]> = SmallVec::new();
        for (i, v) in inputs.iter().enumerate() {
            let tensor = a.tensor(v.ix());
            let Some(data) = a.existing_data(tensor) else { return Ok(Outputs::new()) };
            let Some(ptr) = data.at(dtype, Access::Read) else { return Ok(Outputs::new()) };
            self.touched += data.len();
            if cached_input == Some(i) {
                self.keeps = Some((i, data.clone()));
            }
            self.x.push((ptr, a.shape(tensor).clone()));
            fingerprints.push(data.versioned_fingerprint());
            given.push(a.shape(tensor));
        }
        let shapes = op.shapes(&given)?;
        drop(given);
        let mut data: SmallVec<[(Arc<Storage>, *mut u8); 1]> = SmallVec::new();
        for (o, shape) in shapes.iter().enumerate() {
            let dtype = op.output(o).unwrap_or(dtype);
            let (storage, ptr) = Storage::to_write(shape.checked_size()?, dtype)?;
            self.touched += storage.len();
            data.push((storage, ptr));
        }
        let outputs = build_shaped(a, modes, op.clone(), inputs, &[], &shapes)?;
        let Some(first) = outputs.first() else { return Ok(outputs) };
        let f = a.parent(first.ix());
        let provenance = a.begin_eager(f);
        let inputs = provenance.save_inputs(fingerprints.into_iter(), false);
        provenance.stamp_outputs(inputs, 0, data.iter().map(|(y, _)| &**y));
        self.provenance = Some(ProvenancePtr::to(provenance));
        self.double = compute == Precision::Double;
        for ((output, (data, ptr)), shape) in outputs.iter().zip(data).zip(shapes) {
            a.set_new_data(a.tensor(output.ix()), data);
            self.y.push((ptr, shape));
        }
        Ok(outputs)
    }

    /// Runs the operation on the arrays and stores its state.
    pub(crate) fn forward(&mut self, op: &Op) -> Result<()> {
        let (mut x, mut y): (SmallVec<[Memory<'_>; 5]>, SmallVec<[Memory<'_>; 2]>) = Default::default();
        self.x.iter().for_each(|(ptr, shape)| x.push(Memory { ptr: *ptr, shape }));
        self.y.iter().for_each(|(ptr, shape)| y.push(Memory { ptr: *ptr, shape }));
        let Some(provenance) = &mut self.provenance else { return Ok(()) };
        let state = &mut provenance.state;
        let call = Call {
            input_cache: self.keeps.as_ref().map(|(i, x)| InputCache::new(x, self.x[*i].0)),
            ..Call::new(&x, &y, state, self.double)
        };
        // SAFETY: the arrays were made for this operation, with the shapes it requires.
        stop::guarded(|| unsafe { op.forward(call) })
    }
}
