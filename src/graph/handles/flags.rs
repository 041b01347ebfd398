//! User settings of a variable: whether it needs a gradient, and how runs may treat its memory.

use crate::graph::arena::{self, aliasing, flag};
use crate::graph::handles::variable::Variable;
use crate::graph::settings::modes::is_nnabla;

impl Variable {
    /// True if the variable has this flag.
    fn has(&self, bit: u16) -> bool {
        arena::with(|a| a.has_flag(self.ix(), bit))
    }

    /// Sets or clears flags of the variable.
    fn set(&self, bits: u16, on: bool) {
        arena::with(|a| a.change_flags(self.ix(), bits, on));
    }

    /// True if it needs a gradient: as set by the user, otherwise if an input of its parent needs one.
    ///
    /// ```
    /// use kinnor::graph::{Variable, apply};
    ///
    /// let x = Variable::new([2])?;
    /// let y = apply("sin", &[&x], &[])?.remove(0);
    /// assert!(!x.need_grad() && x.need_grad_flag().is_none());
    /// x.set_need_grad(true);
    /// assert!(y.need_grad() && y.need_grad_flag().is_none());
    /// x.unset_need_grad();
    /// assert!(!x.need_grad());
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn need_grad(&self) -> bool {
        arena::with(|a| a.need_grad(self.ix()))
    }

    /// The value set by [`Variable::set_need_grad`], if any.
    pub fn need_grad_flag(&self) -> Option<bool> {
        arena::with(|a| {
            let flags = a.flags(self.ix());
            (flags & flag::NEED_GRAD_SET != 0).then_some(flags & flag::NEED_GRAD != 0)
        })
    }

    /// The value that follows from its parent, as of the last forward run.
    pub fn need_grad_state(&self) -> bool {
        self.has(flag::NEED_GRAD_STATE)
    }

    /// Sets whether it needs a gradient. If it does, functions that use it need one, too. In NNabla's dialect, they
    /// follow in the next forward run. So they do in both dialects if it needs none.
    pub fn set_need_grad(&self, on: bool) {
        arena::with(|a| {
            a.change_flags(self.ix(), flag::NEED_GRAD_SET, true);
            a.change_flags(self.ix(), flag::NEED_GRAD, on);
            if on && !is_nnabla() {
                a.tell_consumers(self.ix());
            }
        });
    }

    /// Resets need of a gradient to the value that follows from its parent.
    pub fn unset_need_grad(&self) {
        self.set(flag::NEED_GRAD_SET | flag::NEED_GRAD, false);
    }

    /// Sets whether it needs a gradient, and returns the variable for chaining.
    pub fn with_need_grad(self, on: bool) -> Self {
        self.set_need_grad(on);
        self
    }

    /// True if its data may be dropped after use and recomputed for the backward run.
    ///
    /// ```
    /// use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, apply};
    ///
    /// let x = Variable::from_values([1], &[2.0])?.with_need_grad(true);
    /// let h = apply("mul2", &[&x, &x], &[])?.remove(0);
    /// let y = apply("mul2", &[&h, &h], &[])?.remove(0);
    /// h.set_recompute(true);
    /// y.forward(&ForwardOptions::default())?;
    /// assert!(h.data().is_cleared());
    /// assert_eq!(y.functions_to_recompute().len(), 2);
    /// y.backward(&BackwardOptions::default())?;
    /// assert_eq!(x.grad().to_vec()?, [32.0]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn recompute(&self) -> bool {
        self.has(flag::RECOMPUTE)
    }

    /// True if its data may be missing when a gradient reads it, and is then recomputed.
    pub(crate) fn may_be_dropped(&self) -> bool {
        self.has(flag::RESTORED)
    }

    /// Sets [`Variable::recompute`].
    pub fn set_recompute(&self, on: bool) {
        self.set(flag::RECOMPUTE, on);
    }

    /// True if runs must not clear its memory.
    ///
    /// ```
    /// use kinnor::graph::{ForwardOptions, Variable, apply};
    ///
    /// let x = Variable::from_values([1], &[2.0])?;
    /// let a = apply("mul2", &[&x, &x], &[])?.remove(0);
    /// let b = apply("mul2", &[&a, &a], &[])?.remove(0);
    /// let y = apply("exp", &[&b], &[])?.remove(0);
    /// b.set_persistent(true);
    /// y.forward(&ForwardOptions { clear_buffer: true, ..Default::default() })?;
    /// assert!(a.data().is_cleared());
    /// assert_eq!(b.data().to_vec()?, [16.0]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn persistent(&self) -> bool {
        self.has(flag::PERSISTENT)
    }

    /// Sets [`Variable::persistent`].
    pub fn set_persistent(&self, on: bool) {
        self.set(flag::PERSISTENT, on);
    }

    /// True if in-place functions make it share the data of a variable that must not be cleared.
    pub fn prohibit_clear_data(&self) -> bool {
        self.has(flag::PROHIBIT_CLEAR)
    }

    /// Sets [`Variable::prohibit_clear_data`].
    pub fn set_prohibit_clear_data(&self, on: bool) {
        self.set(flag::PROHIBIT_CLEAR, on);
    }

    /// True if an in-place function may change its data.
    ///
    /// ```
    /// use kinnor::graph::{Variable, apply};
    ///
    /// let x = Variable::new([2])?.with_need_grad(true);
    /// let same = apply("identity", &[&x], &[])?.remove(0);
    /// let e = apply("exp", &[&x], &[])?.remove(0); // its gradient reads what it gave
    /// assert!(same.allow_modify_data() && !e.allow_modify_data());
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    pub fn allow_modify_data(&self) -> bool {
        arena::with(|a| aliasing::may_modify(a, self.ix()))
    }
}
