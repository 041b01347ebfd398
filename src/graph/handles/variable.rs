//! Handles on variables, like `nbla::CgVariable` in NNabla's C++.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::array::{Shape, Storage, headroom};
use crate::graph::arena::describe::describe;
use crate::graph::arena::{self, Arena, Ix, NONE, flag};
use crate::graph::handles::function::Function;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::lifetime::liveness;
use crate::graph::settings::modes;
use crate::ops::Array;
use crate::{Error, Result};

/// A handle on a variable of a graph. It keeps the variable alive, and the variable keeps alive everything it was
/// computed from.
///
/// Handles on the same tensor are equal, in a graph or unlinked from it.
///
/// ```
/// use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, apply};
///
/// let x = Variable::from_values([2], &[3.0, 4.0])?.with_need_grad(true);
/// let y = apply("mul2", &[&x, &x], &[])?.remove(0);
/// y.forward(&ForwardOptions::default())?;
/// assert_eq!(y.data().to_vec()?, [9.0, 16.0]);
/// y.backward(&BackwardOptions::default())?;
/// assert_eq!(x.grad().to_vec()?, [6.0, 8.0]);
/// # Ok::<(), kinnor::Error>(())
/// ```
pub struct Variable(Ix);

impl Variable {
    /// A variable of this shape without parent. It reads as zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] if its size exceeds the address space.
    pub fn new(shape: impl Into<Shape>) -> Result<Self> {
        headroom::check()?;
        let shape = shape.into();
        shape.checked_size()?;
        Ok(arena::with(|a| {
            let tensor = a.new_tensor(&shape);
            Self::counted(a, tensor, new_flags())
        }))
    }

    /// A variable that holds `values` as `f32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the count of values does not match the shape.
    pub fn from_values(shape: impl Into<Shape>, values: &[f64]) -> Result<Self> {
        let v = Self::new(shape)?;
        v.data().copy_from_slice(values)?;
        Ok(v)
    }

    /// A handle to a new variable of a tensor.
    fn counted(a: &mut Arena, tensor: Ix, flags: u16) -> Self {
        let v = a.new_variable(tensor, flags, NONE, 0);
        a.count_handle(v);
        Self(v)
    }

    /// A new leaf on a tensor, which needs a gradient.
    pub(crate) fn leaf_on(a: &mut Arena, tensor: Ix) -> Self {
        a.hold_tensor(tensor);
        Self::counted(a, tensor, new_flags() | flag::NEED_GRAD_SET | flag::NEED_GRAD)
    }

    /// A handle that takes over one count of `v`.
    #[inline]
    pub(crate) fn adopt(a: &mut Arena, v: Ix) -> Self {
        a.count_handle(v);
        Self(v)
    }

    /// A handle that the arena has counted already.
    #[inline]
    pub(crate) fn of_counted(v: Ix) -> Self {
        Self(v)
    }

    /// The slot of the variable.
    #[inline]
    pub(crate) fn ix(&self) -> Ix {
        self.0
    }

    /// The slot of the tensor of the variable.
    pub(crate) fn tensor_ix(&self) -> Ix {
        arena::with(|a| a.tensor(self.0))
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        arena::with(|a| a.shape(a.tensor(self.0)).clone())
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        arena::with(|a| a.shape(a.tensor(self.0)).size())
    }

    /// The data, by reference: writing to it writes to the variable.
    pub fn data(&self) -> NdArray {
        arena::with(|a| {
            let tensor = a.tensor(self.0);
            NdArray { storage: Arc::clone(a.data(tensor)), shape: a.shape(tensor).clone() }
        })
    }

    /// True if a function computes it into memory that it does not share with an input.
    pub fn has_own_memory(&self) -> bool {
        arena::with(|a| {
            let f = a.parent(self.0);
            f != NONE && (0..a.inputs(f).len()).all(|i| a.facts(f).alias(i).is_none())
        })
    }

    /// The gradient, by reference.
    pub fn grad(&self) -> NdArray {
        arena::with(|a| {
            let tensor = a.tensor(self.0);
            NdArray { storage: Arc::clone(a.grad(tensor)), shape: a.shape(tensor).clone() }
        })
    }

    /// Data and gradient, for code that works on arrays.
    pub fn array(&self) -> Array {
        let (data, grad) = (self.data(), self.grad());
        Array { shape: data.shape, data: data.storage, grad: grad.storage }
    }

    /// Checks that an array has the shape of the variable.
    fn fits(&self, what: &str, array: &NdArray) -> Result<()> {
        let own = self.shape();
        if own == array.shape && array.storage.len() == own.size() {
            return Ok(());
        }
        Err(Error::shape(format!("{what} of {}", self.describe()), format!("shape {own}"), [&array.shape]))
    }

    /// Shares the data of `data`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the variable has another shape.
    pub fn set_data(&self, data: &NdArray) -> Result<()> {
        self.fits("data", data)?;
        data.storage.give_to_leaf();
        arena::with(|a| a.set_data(a.tensor(self.0), Arc::clone(&data.storage)));
        Ok(())
    }

    /// Shares `grad` as the gradient.
    ///
    /// # Errors
    /// [`Error::Shape`] if the variable has another shape.
    pub fn set_grad(&self, grad: &NdArray) -> Result<()> {
        self.fits("grad", grad)?;
        let old = arena::with(|a| {
            let tensor = a.tensor(self.0);
            a.set_grad(tensor, Some(Arc::clone(&grad.storage)));
            a.set_gradient_variable(tensor, None)
        });
        drop(old);
        Ok(())
    }

    /// Changes the shape of the variable, and of all variables that share its data. The next forward run sets up its
    /// consumers again, and its parent restores its shape. A backward run before that returns an error.
    ///
    /// ```
    /// use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, apply};
    ///
    /// let x = Variable::new([2])?.with_need_grad(true);
    /// let y = apply("sin", &[&x], &[])?.remove(0);
    /// y.forward(&ForwardOptions::default())?;
    /// x.unlinked(None).reset_shape([3], true)?;
    /// assert!(y.backward(&BackwardOptions::default()).is_err());
    /// y.forward(&ForwardOptions::default())?;
    /// y.backward(&BackwardOptions::default())?;
    /// assert_eq!(x.grad().to_vec()?, [1.0; 3]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements differs and `force` is not set.
    pub fn reset_shape(&self, shape: impl Into<Shape>, force: bool) -> Result<()> {
        let shape = shape.into();
        let size = shape.checked_size()?;
        let old = arena::with(|a| {
            let tensor = a.tensor(self.0);
            let own = a.shape(tensor).size();
            if *a.shape(tensor) == shape {
                return Ok(None);
            }
            if own != size && !force {
                let expected = format!("{own} elements as before; pass force=True to drop the data");
                return Err(Error::shape("reset_shape", expected, [&shape]));
            }
            let mut storages = a.existing_data(tensor).into_iter().chain(a.existing_grad(tensor));
            if own != size && storages.any(|storage| storage.is_narrowed()) {
                return Err(Error::Graph(
                    "reset_shape: expected an array of its own, got one that shares memory by narrow".into(),
                ));
            }
            a.reshape(tensor, shape);
            a.mark_need_setup(self.0);
            // A gradient with a graph has the old shape.
            Ok(a.set_gradient_variable(tensor, None))
        })?;
        drop(old);
        Ok(())
    }

    /// The length of the longest path to it from a variable without parent.
    pub fn rank(&self) -> u32 {
        arena::with(|a| a.rank(self.0))
    }

    /// The name, if any.
    pub fn name(&self) -> Option<String> {
        arena::with(|a| a.name(self.0).map(str::to_string))
    }

    /// Sets the name. Unlinked copies do not inherit it.
    pub fn set_name(&self, name: Option<String>) {
        arena::with(|a| a.set_name(self.0, name));
    }

    /// A text for error messages that identifies the variable.
    pub fn describe(&self) -> String {
        arena::with(|a| describe(a, self.0))
    }

    /// True if it is a leaf with values of its own, or its parent has run.
    pub fn is_computed(&self) -> bool {
        arena::with(|a| a.is_computed(self.0))
    }

    /// True if it was computed from leaves whose values changed since.
    pub fn is_stale(&self) -> bool {
        arena::with(|a| a.is_computed(self.0) && a.is_stale(self.0))
    }

    /// Checks that its values may be read: it is a leaf, its function has run, or they were assigned.
    ///
    /// # Errors
    /// [`Error::NotComputed`] if they may not. In NNabla's dialect they read as zeros.
    pub fn check_computed(&self, op: &str) -> Result<()> {
        Self::check_all_computed(op, &[self])
    }

    /// Checks that the values of all inputs of `op` may be read, see [`Variable::check_computed`].
    pub(crate) fn check_all_computed(op: &str, inputs: &[&Self]) -> Result<()> {
        if modes::is_nnabla() || arena::with(|a| inputs.iter().all(|v| a.is_computed(v.0))) {
            return Ok(());
        }
        let waits = |v: &&&Self| !v.is_computed() && v.data().storage.is_unwritten();
        let Some(v) = inputs.iter().find(waits) else { return Ok(()) };
        let by = arena::with(|a| {
            let parent = a.parent(v.0);
            if parent == NONE { "its function".into() } else { a.op(parent).name().to_string() }
        });
        Err(Error::NotComputed(format!(
            "{op}: expected computed values, got {}, which {by} has not computed; call forward(), or build under \
             nn.auto_forward()",
            v.describe()
        )))
    }

    /// The function that computes it.
    pub fn parent(&self) -> Option<Function> {
        arena::with(|a| {
            let f = a.parent(self.0);
            (f != NONE).then(|| Function::counted(a, f))
        })
    }

    /// The live functions that take it, each once, in order of creation.
    pub fn function_references(&self) -> Vec<Function> {
        arena::with(|a| {
            let mut seen: Vec<Ix> = Vec::new();
            for f in a.consumers(self.0) {
                if !seen.contains(&f) {
                    seen.push(f);
                }
            }
            seen.into_iter().map(|f| Function::counted(a, f)).collect()
        })
    }

    /// The number of times that live functions take it. A function that takes it twice counts twice.
    pub fn function_reference_count(&self) -> usize {
        arena::with(|a| a.consumers(self.0).count())
    }

    /// The number of handles that reach its data: in the graph, unlinked, in place or shared.
    pub fn number_of_references(&self) -> usize {
        arena::with(|a| a.users(a.tensor(self.0)))
    }

    /// Requests another setup of every function that takes it, in the next forward run.
    ///
    /// ```
    /// use kinnor::graph::{ForwardOptions, Variable, apply};
    ///
    /// let x = Variable::new([2])?;
    /// let y = apply("exp", &[&x], &[])?.remove(0);
    /// x.reset_shape([3], true)?; // marks it by itself
    /// x.mark_need_setup();
    /// y.forward(&ForwardOptions::default())?;
    /// assert_eq!(y.data().to_vec()?, [1.0; 3]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn mark_need_setup(&self) {
        arena::with(|a| a.mark_need_setup(self.0));
    }

    /// A variable without parent on the same data and gradient.
    pub fn unlinked(&self, need_grad: Option<bool>) -> Self {
        arena::with(|a| {
            let tensor = a.tensor(self.0);
            a.hold_tensor(tensor);
            a.data(tensor).give_to_leaf();
            let on = need_grad.unwrap_or_else(|| a.need_grad(self.0));
            let need = flag::NEED_GRAD_SET | if on { flag::NEED_GRAD } else { 0 };
            let output = if a.is_computed(self.0) { 0 } else { flag::OF_OUTPUT };
            Self::counted(a, tensor, new_flags() | need | output)
        })
    }

    /// A variable of another shape without parent, on the same data and gradient.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements differs.
    pub fn reshaped_unlinked(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let own = self.shape();
        if own.size() != shape.checked_size()? {
            return Err(Error::shape("reshape", format!("{} elements", own.size()), [&shape]));
        }
        let (data, grad) = (self.data().storage, self.grad().storage);
        data.give_to_leaf();
        Ok(arena::with(|a| {
            let need = flag::NEED_GRAD_SET | if a.need_grad(self.0) { flag::NEED_GRAD } else { 0 };
            let tensor = a.new_tensor(&shape);
            a.set_data(tensor, data);
            a.set_grad(tensor, Some(grad));
            Self::counted(a, tensor, new_flags() | need)
        }))
    }

    /// Frees its memory if no gradient reads it, as dynamic mode does when the last handle is dropped.
    ///
    /// ```
    /// use kinnor::graph::{ForwardOptions, Variable, apply};
    ///
    /// let x = Variable::new([2])?.with_need_grad(true);
    /// let h = apply("identity", &[&x], &[])?.remove(0);
    /// let y = apply("sin", &[&h], &[])?.remove(0); // its gradient reads `h`
    /// let z = apply("add2", &[&y, &y], &[])?.remove(0);
    /// z.forward(&ForwardOptions::default())?;
    /// for v in [&x, &h, &y] {
    ///     v.clear_during_auto_forward()?;
    /// }
    /// let cleared = [&x, &h, &y].map(|v| v.data().is_cleared());
    /// assert_eq!(cleared, [false, false, true]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Graph`] if the memory is shared by narrow.
    pub fn clear_during_auto_forward(&self) -> Result<()> {
        match arena::with(|a| liveness::unneeded(a, self.0, 2)) {
            Some(storage) => storage.clear(true),
            None => Ok(()),
        }
    }
}

/// Initial flags of a new variable.
pub(crate) fn new_flags() -> u16 {
    if modes::recompute() { flag::RECOMPUTE } else { 0 }
}

impl Variable {
    /// Adds the storages of the data and gradient of each variable to a list.
    pub(crate) fn add_storages<'a>(
        all: impl Iterator<Item = &'a Self>,
        pairs: &mut Vec<(Arc<Storage>, Arc<Storage>)>,
    ) {
        arena::with(|a| {
            for variable in all {
                let tensor = a.tensor(variable.0);
                pairs.push((Arc::clone(a.data(tensor)), Arc::clone(a.grad(tensor))));
            }
        });
    }
}

impl Clone for Variable {
    fn clone(&self) -> Self {
        arena::with(|a| a.add_handle(self.0));
        Self(self.0)
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        let dynamic = modes::auto_forward();
        let unneeded = arena::with(|a| {
            // A value that is freed with this handle need not be cleared.
            let outlives = dynamic && a.has_other_holders(self.0);
            let unneeded = if outlives { liveness::unneeded(a, self.0, 2) } else { None };
            a.drop_handle(self.0);
            unneeded
        });
        if let Some(Err(error)) = unneeded.map(|storage| storage.clear(true)) {
            liveness::note_error_at_drop(error);
        }
    }
}

impl PartialEq for Variable {
    fn eq(&self, other: &Self) -> bool {
        arena::with(|a| a.tensor(self.0) == a.tensor(other.0))
    }
}

impl Eq for Variable {}

impl Hash for Variable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tensor_ix().hash(state);
    }
}
