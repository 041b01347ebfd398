//! One function prepared to run backward: from the gradients of its outputs to the gradients of its inputs. A run does
//! not lock the arena.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, DType, Shape, Storage};
use crate::graph::arena::provenance::{Modified, Side};
use crate::graph::arena::{Arena, Ix, NONE, tensors};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context::{self, Precision};
use crate::graph::step::operand::{Operand, ProvenancePtr, Temporaries, read_as, store};
use crate::graph::step::prepare::data_array;
use crate::kernels::map;
use crate::ops::{Array, Op, Reads};

/// The number of inputs above which pairwise comparison is avoided.
const MANY: usize = 16;

/// The destination of the gradient of one input.
pub(crate) struct GradientSink {
    /// The gradient.
    pub(crate) slot: Operand,
    /// Always overwrite: this is the first contribution to the gradient of an intermediate variable.
    pub(crate) first: bool,
    /// Another requested input of the function has the same gradient: add after the kernel.
    pub(crate) again: bool,
}

/// The data of an input or output: with elements if the gradient reads them, otherwise only a shape.
pub(crate) enum DataOperand {
    /// With elements.
    Read(Operand),
    /// Only a shape.
    Unread(Shape),
}

impl DataOperand {
    /// The array of a tensor in a type if it is read, and only its shape otherwise.
    fn new(
        a: &mut Arena,
        tensor: Ix,
        is_computed: bool,
        as_type: impl FnOnce() -> DType,
        is_read: bool,
    ) -> Self {
        if !is_read {
            return Self::Unread(a.shape(tensor).clone());
        }
        let as_type = as_type();
        let mut operand = Operand::new(tensor, data_array(a, tensor), as_type, as_type);
        operand.is_computed = is_computed;
        Self::Read(operand)
    }

    /// The shape of the array.
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Self::Read(operand) => &operand.shape,
            Self::Unread(shape) => shape,
        }
    }

    /// The array, if the gradient reads it.
    pub(crate) fn read(&self) -> Option<&Operand> {
        if let Self::Read(operand) = self { Some(operand) } else { None }
    }

    /// The array, if the gradient reads it.
    pub(crate) fn read_mut(&mut self) -> Option<&mut Operand> {
        if let Self::Read(operand) = self { Some(operand) } else { None }
    }
}

/// All inputs and outputs of a function, for operations on arrays.
pub(crate) struct BothSides {
    /// The inputs.
    pub(crate) x: Vec<Array>,
    /// The outputs.
    pub(crate) y: Vec<Array>,
    /// The tensors they belong to.
    pub(crate) tensors: Vec<Ix>,
}

/// One function prepared to run backward.
pub(crate) struct BackwardStep {
    /// The operation.
    pub(crate) op: Op,
    /// The precision in which it computes.
    pub(crate) compute: Precision,
    /// Inputs.
    pub(crate) x: SmallVec<[DataOperand; 3]>,
    /// Outputs.
    pub(crate) y: SmallVec<[DataOperand; 1]>,
    /// Gradients of the outputs.
    pub(crate) gy: SmallVec<[Operand; 1]>,
    /// Gradients of the inputs. None if not wanted.
    pub(crate) gx: SmallVec<[Option<GradientSink>; 3]>,
    /// State saved by the forward run.
    pub(crate) provenance: ProvenancePtr,
    /// The input whose gradient may reuse the memory of the output's gradient, which the plan clears after the step.
    pub(crate) over: Option<usize>,
    /// The inputs and outputs of an operation on arrays. None for an operation made of kernels.
    pub(crate) arrays: Option<Box<BothSides>>,
    /// A written gradient may overlap an array that is read, or another written gradient.
    pub(crate) meets: bool,
    /// Each gradient is stored in the kernel's type, and none belongs to two inputs.
    pub(crate) is_plain: bool,
}

/// A placeholder address for data that is never read.
pub(crate) fn nowhere() -> *mut u8 {
    std::ptr::without_provenance_mut(64)
}

impl BackwardStep {
    /// A step without operands.
    fn without_operands(op: Op, compute: Precision, provenance: ProvenancePtr) -> Self {
        Self {
            op,
            compute,
            x: SmallVec::new(),
            y: SmallVec::new(),
            gy: SmallVec::new(),
            gx: SmallVec::new(),
            provenance,
            over: None,
            arrays: None,
            meets: false,
            is_plain: false,
        }
    }

    /// A function prepared to run backward for the requested inputs. `gradient` returns the location of a tensor's
    /// gradient, and for an input whether this is the first contribution.
    pub(crate) fn of(
        a: &mut Arena,
        f: Ix,
        wanted: &[bool],
        mut gradient: impl FnMut(&mut Arena, Ix, Side) -> (Arc<Storage>, bool),
    ) -> Self {
        let (op, compute) = (a.op(f).clone(), context::precision(a.context(f)));
        let mut step = Self::without_operands(op, compute, ProvenancePtr::to(a.provenance_mut(f)));
        let Self { op, x, y, gy, gx, .. } = &mut step;
        let (facts, mut reads) = (op.facts(), Reads::NOTHING);
        for (i, _) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
            reads = reads.or(facts.backward_reads(i));
        }
        let (dtype, stored) = (compute.dtype(), compute.stored());
        let slot = |a: &Arena, tensor: Ix, storage| {
            let array = NdArray { storage, shape: a.shape(tensor).clone() };
            Operand::new(tensor, array, dtype, stored)
        };
        for o in 0..a.n_outputs(f) {
            let tensor = a.output_tensor(f, o);
            y.push(DataOperand::new(a, tensor, true, || op.output(o).unwrap_or(dtype), reads.output(o)));
            let (storage, _) = gradient(a, tensor, Side::Output(o));
            gy.push(slot(a, tensor, storage));
        }
        let mut met: BTreeSet<*const Storage> = BTreeSet::new();
        for (i, wanted_here) in wanted.iter().enumerate() {
            let v = a.inputs(f)[i];
            let (tensor, parent) = (a.tensor(v), a.parent(v));
            x.push(DataOperand::new(a, tensor, parent != NONE, || read_as(op, i, compute), reads.input(i)));
            let sink = wanted_here.then(|| {
                let (storage, first) = gradient(a, tensor, Side::Input(i));
                let mut slot = slot(a, tensor, storage);
                // A parameter in `f32` has its gradient in `f32`, except in NNabla's dialect.
                let data = a.existing_data(tensor).filter(|_| parent == NONE && stored != dtype);
                if data.is_some_and(|data| data.dtype() == Some(dtype)) && compute.rounds().is_none() {
                    slot.stored = dtype;
                }
                let again = match wanted.len() > MANY {
                    true => !met.insert(Arc::as_ptr(&slot.storage)),
                    false => gx.iter().flatten().any(|s| Arc::ptr_eq(&s.slot.storage, &slot.storage)),
                };
                GradientSink { slot, first, again }
            });
            gx.push(sink);
        }
        if op.on_arrays().is_some() {
            let (x_tensors, y_tensors) = tensors(a, f);
            let mut array = |tensor: Ix, grad: Option<&Operand>| Array {
                shape: a.shape(tensor).clone(),
                data: Arc::clone(a.data(tensor)),
                grad: Arc::clone(grad.map_or_else(|| a.grad(tensor), |slot| &slot.storage)),
            };
            let (inputs, outputs) = (x_tensors.iter().zip(&*gx), y_tensors.iter().zip(&*gy));
            step.arrays = Some(Box::new(BothSides {
                x: inputs.map(|(tensor, sink)| array(*tensor, sink.as_ref().map(|s| &s.slot))).collect(),
                y: outputs.map(|(tensor, slot)| array(*tensor, Some(slot))).collect(),
                tensors: x_tensors.iter().chain(&y_tensors).copied().collect(),
            }));
        }
        step.look();
        step
    }

    /// A step on arrays chosen by the caller: inputs with whether each needs a gradient, outputs, and whether to
    /// accumulate.
    pub(crate) fn by_hand(
        op: Op,
        compute: Precision,
        x: &[(Array, bool)],
        y: &[Array],
        accumulate: &[bool],
        provenance: ProvenancePtr,
    ) -> Self {
        let (dtype, stored) = (compute.dtype(), compute.stored());
        let slot = |shape: &Shape, storage: &Arc<Storage>, as_type, stored| {
            Operand::new(
                NONE,
                NdArray { shape: shape.clone(), storage: Arc::clone(storage) },
                as_type,
                stored,
            )
        };
        let data = |a: &Array, as_type| DataOperand::Read(slot(&a.shape, &a.data, as_type, as_type));
        let mut gx: SmallVec<[Option<GradientSink>; 3]> = SmallVec::new();
        for (i, (x, need_grad)) in x.iter().enumerate() {
            let wanted = *need_grad && !op.kind(i).is_whole();
            let again = gx.iter().flatten().any(|s| Arc::ptr_eq(&s.slot.storage, &x.grad));
            let first = !accumulate.get(i).copied().unwrap_or(true);
            gx.push(wanted.then(|| GradientSink {
                slot: slot(&x.shape, &x.grad, dtype, stored),
                first,
                again,
            }));
        }
        let arrays = op.on_arrays().is_some().then(|| {
            let x = x.iter().map(|(x, _)| x.clone()).collect();
            Box::new(BothSides { x, y: y.to_vec(), tensors: Vec::new() })
        });
        let mut step = Self {
            x: x.iter().enumerate().map(|(i, (x, _))| data(x, read_as(&op, i, compute))).collect(),
            y: y.iter().enumerate().map(|(o, y)| data(y, op.output(o).unwrap_or(dtype))).collect(),
            gy: y.iter().map(|y| slot(&y.shape, &y.grad, dtype, stored)).collect(),
            gx,
            arrays,
            ..Self::without_operands(op, compute, provenance)
        };
        step.look();
        step
    }

    /// Determines the properties that depend on the memory of its arrays.
    pub(crate) fn look(&mut self) {
        let data = || self.x.iter().chain(&self.y).filter_map(DataOperand::read);
        let read = || data().chain(&self.gy).map(|slot| &*slot.storage);
        let written = || self.gx.iter().flatten().map(|sink| &*sink.slot.storage);
        self.meets = if self.gx.len() > MANY || read().chain(written()).any(Storage::may_be_met) {
            let all = read().map(|storage| (storage, false)).chain(written().map(|storage| (storage, true)));
            Storage::any_may_meet(&mut all.collect::<SmallVec<[_; 8]>>())
        } else {
            written().any(|to| read().any(|from| std::ptr::eq(to, from)))
        };
        let is_plain = |sink: &GradientSink| !sink.again && sink.slot.dtype == sink.slot.stored;
        self.is_plain = self.gx.iter().flatten().all(is_plain);
    }

    /// Reads the gradient of output `o` from another storage.
    pub(crate) fn start_from(&mut self, o: usize, grad: &Arc<Storage>) {
        if self.gy[o].move_to(grad) {
            self.meets |= self.gx.iter().flatten().any(|sink| sink.slot.storage.may_meet(grad));
        }
        if let Some(arrays) = &mut self.arrays {
            arrays.y[o].grad = Arc::clone(grad);
        }
    }

    /// Sets whether the step counts the buffers it uses, so that it needs no [`RunGuard`](crate::array::RunGuard).
    pub(crate) fn count(&mut self, on: bool) {
        let data = self.x.iter_mut().chain(&mut self.y).filter_map(DataOperand::read_mut);
        let sinks = self.gx.iter_mut().flatten().map(|sink| &mut sink.slot);
        data.chain(&mut self.gy).chain(sinks).for_each(|slot| slot.counted = on);
    }

    /// Releases all arrays. The step must not run again.
    pub(crate) fn release(&mut self) {
        self.x.clear();
        self.y.clear();
        self.gy.clear();
        self.gx.clear();
        self.arrays = None;
    }

    /// Returns a value that the gradient reads and that changed since the forward run.
    pub(crate) fn modified(&self) -> Option<Modified> {
        self.changed(|storage| !storage.is_cleared())
    }

    /// Returns a value that the gradient reads and that changed or was cleared since the forward run, if `counts` is
    /// true for it.
    pub(crate) fn changed(&self, counts: impl Fn(&Storage) -> bool) -> Option<Modified> {
        /// The storage of an array that the gradient reads. None for one that it does not read.
        fn storage(data: &DataOperand) -> Option<&Storage> {
            data.read().map(|slot| &*slot.storage)
        }
        self.provenance.changed(self.x.iter().map(storage), self.y.iter().map(storage), counts)
    }
}

/// Clears the gradients that a failed kernel was to write or add to, since they may be half done.
#[cold]
pub(crate) fn forget(gx: &[Option<GradientSink>]) {
    gx.iter().flatten().for_each(|sink| sink.slot.storage.give_up());
}

/// Adds elements of the kernel's type at `from` to an array.
pub(crate) fn add_to(slot: &mut Operand, from: *const u8) -> Result<()> {
    let mut temporaries = Temporaries::new();
    let n = slot.shape.size();
    let to = slot.place(Access::ReadWrite, &mut temporaries)?;
    // SAFETY: both hold `n` elements of the kernel's type.
    unsafe {
        if slot.dtype == DType::F64 {
            map::add::<f64>(from.cast(), to.cast(), n);
        } else {
            map::add::<f32>(from.cast(), to.cast(), n);
        }
    }
    slot.storage.wrote();
    store(temporaries)
}
