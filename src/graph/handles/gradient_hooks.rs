//! State for the gradient of one variable: hooks, whether to retain it, and the gradient as a variable that can be
//! differentiated again.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::array::Fingerprint;
use crate::graph::arena::{self, Arena, Attached, Attachment, Ix, NONE};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::user::User;
use crate::graph::handles::variable::Variable;
use crate::ops::Op;
use crate::{Error, Result};

/// A user hook that is called with gradients.
pub trait GradientHook: Send + Sync {
    /// Called with a gradient. If it returns one, that replaces the gradient.
    ///
    /// # Errors
    /// Errors of the user code.
    fn call(&self, g: &Variable) -> Result<Option<Variable>>;
    /// The hook as an object of the language it is written in.
    fn object(&self) -> &(dyn Any + Send + Sync);
}

impl<F: Fn(&Variable) -> Result<Option<Variable>> + Send + Sync + 'static> GradientHook for F {
    fn call(&self, g: &Variable) -> Result<Option<Variable>> {
        self(g)
    }

    fn object(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

/// The time at which a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With the sum of all contributions, before it is used.
    Gradient,
    /// With the variable, after a run has added to its gradient.
    Accumulated,
}

/// A hook on the gradient of a tensor.
struct RegisteredHook {
    /// Registered on a leaf. The tensor may also belong to an intermediate variable.
    leaf: bool,
    /// The variable that it was registered on, and its generation.
    owner: (Ix, u32),
    /// When it is called.
    when: When,
    /// The function to call with the gradient.
    call: Arc<dyn GradientHook>,
    /// True once the hook's [`HookHandle`] has removed it.
    removed: Arc<AtomicBool>,
}

impl RegisteredHook {
    /// True if the hook was not removed.
    fn is_there(&self) -> bool {
        !self.removed.load(Ordering::Relaxed)
    }
}

/// State attached to a tensor with hooks or a retained gradient.
#[derive(Default)]
pub(crate) struct GradientState {
    /// The hooks, in order of registration.
    hooks: Vec<RegisteredHook>,
    /// The gradient is stored although the tensor is not a leaf.
    retained: bool,
    /// The gradient with its graph, and the fingerprint that its values had.
    gradient: Option<(Variable, Fingerprint)>,
}

impl Attachment for GradientState {}

/// Removes a hook. Keeps nothing alive, and has no effect when dropped.
#[derive(Clone, Debug)]
pub struct HookHandle(Arc<AtomicBool>);

impl HookHandle {
    /// Removes the hook: it is not called any more.
    pub fn remove(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Arena {
    /// The hooks and the gradient in a graph of a tensor, created if needed.
    fn gradient_state(&mut self, tensor: Ix) -> &mut GradientState {
        self.gradient_attachment_mut(tensor).get_or_default()
    }

    /// True if a run must keep the gradient of an output of a function for the user.
    pub(crate) fn is_watched(&self, tensor: Ix) -> bool {
        let hooked = |w: &GradientState| w.hooks.iter().any(|h| !self.is_on_leaf(h) && h.is_there());
        self.gradient_attachment(tensor).get::<GradientState>().is_some_and(|w| w.retained || hooked(w))
    }

    /// True if a hook belongs to a leaf. Flags of inputs that change after the registration take effect with the next
    /// run. They may make its variable an intermediate one, or one that no gradient flows through.
    fn is_on_leaf(&self, hook: &RegisteredHook) -> bool {
        let (owner, is_alive) = (hook.owner.0, self.is_alive(hook.owner));
        match hook.leaf {
            true => !is_alive || self.is_end(owner),
            // Hooks of a variable that was cut off stay with its function.
            false => is_alive && self.parent(owner) != NONE && self.is_end(owner),
        }
    }

    /// True if the gradient of an intermediate variable is retained.
    pub(crate) fn is_retained(&self, tensor: Ix) -> bool {
        self.gradient_attachment(tensor).get::<GradientState>().is_some_and(|w| w.retained)
    }

    /// The hooks on a leaf, or on the output of a function.
    pub(crate) fn gradient_hooks(&self, tensor: Ix, leaf: bool, when: When) -> Vec<Arc<dyn GradientHook>> {
        let watch = self.gradient_attachment(tensor).get::<GradientState>();
        let all = watch.into_iter().flat_map(|w| &w.hooks);
        let called = all.filter(|h| self.is_on_leaf(h) == leaf && h.when == when && h.is_there());
        called.map(|h| Arc::clone(&h.call)).collect()
    }

    /// The gradient of a tensor as a variable with a graph, if it still matches the memory of the gradient.
    pub(crate) fn gradient_variable(&mut self, tensor: Ix) -> Option<Variable> {
        let v = self.gradient_in_graph(tensor)?;
        self.hold(v);
        Some(Variable::adopt(self, v))
    }

    /// True if [`Arena::gradient_variable`] would return one.
    pub(crate) fn has_gradient_variable(&self, tensor: Ix) -> bool {
        self.gradient_in_graph(tensor).is_some()
    }

    /// The variable that computed the current gradient of a tensor, if the gradient has not changed since.
    fn gradient_in_graph(&self, tensor: Ix) -> Option<Ix> {
        let (v, fingerprint) = self.gradient_attachment(tensor).get::<GradientState>()?.gradient.as_ref()?;
        let v = v.ix();
        let data = self.existing_data(self.tensor(v))?;
        if !self.existing_grad(tensor).is_some_and(|grad| Arc::ptr_eq(grad, data))
            || data.fingerprint() != *fingerprint
        {
            return None;
        }
        Some(v)
    }

    /// Replaces the gradient variable. Returns the old one, to be dropped after unlocking.
    pub(crate) fn set_gradient_variable(&mut self, tensor: Ix, v: Option<Variable>) -> Option<Variable> {
        if v.is_none() && self.gradient_attachment(tensor).get::<GradientState>().is_none() {
            return None;
        }
        let named = v.map(|v| {
            let fingerprint = self.data(self.tensor(v.ix())).fingerprint();
            (v, fingerprint)
        });
        std::mem::replace(&mut self.gradient_state(tensor).gradient, named).map(|(old, _)| old)
    }
}

impl Variable {
    /// True if no gradient flows through it: it needs none, or has no parent that gradients flow through.
    pub fn is_leaf(&self) -> bool {
        arena::with(|a| a.is_end(self.ix()) || !a.need_grad(self.ix()))
    }

    /// Sets whether it needs a gradient, after more checks than [`Variable::set_need_grad`] makes.
    ///
    /// # Errors
    /// [`Error::Graph`] if it would stop gradients at the output of a function, or request gradients of a type other
    /// than floating point.
    pub fn set_requires_grad(&self, on: bool) -> Result<()> {
        if !on && !self.is_leaf() {
            return Err(Error::Graph(format!(
                "requires_grad: expected a leaf to set it to False on, got {}, which a function computes; use detach() \
                 or get_unlinked_variable()",
                self.describe()
            )));
        }
        if let Some(dtype) = self.data().storage.dtype().filter(|dtype| on && !dtype.is_float()) {
            return Err(Error::Graph(format!(
                "requires_grad: expected a variable of floating-point numbers, got dtype {dtype}"
            )));
        }
        // A value that follows from its inputs is not set explicitly.
        if self.need_grad() != on {
            self.set_need_grad(on);
        }
        Ok(())
    }

    /// Registers a hook on its gradient. See [`When`].
    ///
    /// # Errors
    /// [`Error::Graph`] if it needs no gradient, or if `when` is [`When::Accumulated`] and it is not a leaf.
    pub fn add_gradient_hook(&self, when: When, call: Arc<dyn GradientHook>) -> Result<HookHandle> {
        if !self.need_grad() {
            return Err(Error::Graph(format!(
                "hook: expected a variable that requires grad, got {}",
                self.describe()
            )));
        }
        let removed = Arc::new(AtomicBool::new(false));
        let handle = HookHandle(Arc::clone(&removed));
        let old = arena::with(|a| {
            let (tensor, leaf) = (a.tensor(self.ix()), a.is_end(self.ix()));
            let owner = (self.ix(), a.generation(self.ix()));
            if when == When::Accumulated && !leaf {
                let text = "hook after accumulation: expected a leaf, got what a function computes";
                return Err(Error::Graph(text.into()));
            }
            a.note_hook();
            a.outdate(tensor); // plans contain the hooks to call
            let hooks = &mut a.gradient_state(tensor).hooks;
            let old: Vec<RegisteredHook> = hooks.extract_if(.., |h| !h.is_there()).collect();
            hooks.push(RegisteredHook { leaf, owner, when, call, removed });
            Ok(old)
        })?;
        drop(old);
        Ok(handle)
    }

    /// Visits the hooks that only this handle keeps alive: the variable is in no graph but the one that computes it,
    /// and nothing else holds that graph.
    pub fn visit_own_hooks(&self, mut visit: impl FnMut(&dyn GradientHook)) {
        arena::with(|a| {
            let tensor = a.tensor(self.ix());
            let state =
                a.gradient_attachment(tensor).get::<GradientState>().filter(|_| a.has_one_holder(self.ix()));
            let hooks = state.into_iter().flat_map(|watch| &watch.hooks);
            hooks.filter(|hook| hook.is_there()).for_each(|hook| visit(&*hook.call));
        });
    }

    /// Visits the user operations that only this handle keeps alive: nothing else holds a variable, function or
    /// operation on the path up from it.
    pub fn visit_own_operations(&self, mut visit: impl FnMut(&User)) {
        arena::with(|a| {
            let (mut next, mut plans): (Vec<Ix>, Vec<&Attached>) = (vec![self.ix()], Vec::new());
            while let Some(v) = next.pop() {
                let f = a.parent(v);
                if f == NONE || !a.has_one_holder(v) {
                    continue;
                }
                plans.extend(a.plans(v));
                let op = a.op(f);
                if let (Some(user), Op::Shared(shared)) = (op.user().and_then(|user| user.downcast_ref()), op)
                {
                    // A plan also holds operations, and the owner of the plan's variable holds the plan.
                    let planned: usize = plans.iter().map(|plan| plan.operation_handles(shared)).sum();
                    if Arc::strong_count(shared) == 1 + planned {
                        visit(user);
                    }
                }
                next.extend(a.inputs(f));
            }
        });
    }

    /// Removes the hooks that [`Variable::visit_own_hooks`] visits.
    pub fn drop_own_hooks(&self) {
        let old = arena::with(|a| {
            let tensor = a.tensor(self.ix());
            let own = a.has_one_holder(self.ix());
            own.then(|| {
                a.gradient_attachment_mut(tensor)
                    .get_mut::<GradientState>()
                    .map(|watch| std::mem::take(&mut watch.hooks))
            })
        });
        drop(old);
    }

    /// Accumulates the gradient of this variable during differentiation, as for leaves. A run of
    /// [`Variable::backward`] keeps the gradient where it would otherwise clear it.
    ///
    /// # Errors
    /// [`Error::Graph`] if it needs no gradient.
    pub fn retain_grad(&self) -> Result<()> {
        if !self.need_grad() {
            return Err(Error::Graph(format!(
                "retain_grad: expected a variable that requires grad, got {}",
                self.describe()
            )));
        }
        arena::with(|a| {
            if !a.is_end(self.ix()) {
                let tensor = a.tensor(self.ix());
                a.gradient_state(tensor).retained = true;
                a.outdate(tensor);
            }
        });
        Ok(())
    }

    /// True if [`Variable::retain_grad`] was called and a function computes the variable.
    pub fn retains_grad(&self) -> bool {
        arena::with(|a| !a.is_end(self.ix()) && a.is_retained(a.tensor(self.ix())))
    }

    /// True if the gradient was written since it was created, zeroed or dropped.
    pub fn has_grad(&self) -> bool {
        arena::with(|a| {
            let grad = a.existing_grad(a.tensor(self.ix()));
            grad.is_some_and(|grad| !grad.is_zero() && !grad.is_cleared())
        })
    }

    /// The gradient as a variable on the same memory, with its graph if it has one.
    pub fn grad_variable(&self) -> Option<Self> {
        if !self.has_grad() {
            return None;
        }
        let found = arena::with(|a| a.gradient_variable(a.tensor(self.ix())));
        found.or_else(|| Self::over(&self.grad()).ok())
    }

    /// Frees the memory of the gradient, which then reads as zeros, and drops the graph of the gradient.
    pub fn drop_grad(&self) {
        let old = arena::with(|a| {
            let tensor = a.tensor(self.ix());
            a.set_grad(tensor, None);
            a.set_gradient_variable(tensor, None)
        });
        drop(old);
    }

    /// A leaf on the memory of an array, which needs no gradient.
    pub(crate) fn over(array: &NdArray) -> Result<Self> {
        let v = Self::new(array.shape.clone())?.with_need_grad(false);
        v.set_data(array)?;
        Ok(v)
    }
}

/// Calls hooks with a gradient, in order, and returns the replacement, if any.
pub(crate) fn call_each(hooks: &[Arc<dyn GradientHook>], g: &Variable) -> Result<Option<Variable>> {
    let shape = g.shape();
    let mut changed: Option<Variable> = None;
    for hook in hooks {
        let Some(new) = hook.call(changed.as_ref().unwrap_or(g))? else { continue };
        if new.shape() != shape {
            return Err(Error::shape("hook", format!("a gradient of shape {shape}"), [&new.shape()]));
        }
        changed = Some(new);
    }
    match changed.as_ref().map(Variable::shape) {
        // A later hook received it.
        Some(got) if got != shape => {
            Err(Error::shape("hook", format!("a gradient of shape {shape}"), [&got]))
        }
        _ => Ok(changed),
    }
}

/// Calls the hooks on leaves whose gradients a run has added to.
pub(crate) fn tell_all_accumulated(leaves: &[Ix]) -> Result<()> {
    let hooked = arena::with(|a| {
        let any =
            |tensor: &Ix| a.is_hooked() && !a.gradient_hooks(*tensor, true, When::Accumulated).is_empty();
        leaves.iter().copied().filter(any).collect::<SmallVec<[Ix; 4]>>()
    });
    hooked.into_iter().try_for_each(tell_accumulated)
}

/// Calls the hooks on a leaf whose gradient a run has added to.
pub(crate) fn tell_accumulated(tensor: Ix) -> Result<()> {
    let (hooks, leaf) = arena::with(|a| {
        let hooks = a.gradient_hooks(tensor, true, When::Accumulated);
        let leaf = (!hooks.is_empty()).then(|| Variable::leaf_on(a, tensor));
        (hooks, leaf)
    });
    hooks.iter().zip(leaf.iter().cycle()).try_for_each(|(hook, leaf)| hook.call(leaf).map(drop))
}

/// The number of live variables, in graphs or held by handles, for tests of memory release.
pub fn live_variables() -> usize {
    arena::with(|a| a.live_variables())
}
