//! What a user may say of a variable: that gradients flow to it, and what may become of its memory.

use super::arena::{self, flag};
use super::{Variable, inplace};

impl Variable {
    fn has(&self, bit: u16) -> bool {
        arena::with(|a| a.variables[self.ix()].flags & bit != 0)
    }

    fn set(&self, bits: u16, on: bool) {
        arena::with(|a| {
            let flags = &mut a.variables[self.ix()].flags;
            let old = *flags;
            *flags = if on { old | bits } else { old & !bits };
            if old != *flags {
                a.changed(self.ix());
            }
        });
    }

    /// Whether gradients flow to it: what was set, else whether they flow to an input of its parent.
    pub fn need_grad(&self) -> bool {
        arena::with(|a| a.need_grad(self.ix()))
    }

    /// What was set by [`Variable::set_need_grad`], if anything.
    pub fn need_grad_flag(&self) -> Option<bool> {
        arena::with(|a| {
            let flags = a.variables[self.ix()].flags;
            (flags & flag::NEED_GRAD_SET != 0).then_some(flags & flag::NEED_GRAD != 0)
        })
    }

    /// What follows from its parent, as of the last forward run.
    pub fn need_grad_state(&self) -> bool {
        self.has(flag::NEED_GRAD_STATE)
    }

    /// Says whether it needs a gradient.
    pub fn set_need_grad(&self, on: bool) {
        self.set(flag::NEED_GRAD_SET, true);
        self.set(flag::NEED_GRAD, on);
    }

    /// Lets need of a gradient follow from its parent again.
    pub fn unset_need_grad(&self) {
        self.set(flag::NEED_GRAD_SET | flag::NEED_GRAD, false);
    }

    /// As [`Variable::set_need_grad`], for chaining.
    pub fn with_need_grad(self, on: bool) -> Self {
        self.set_need_grad(on);
        self
    }

    /// Whether its data may be dropped after use and computed again for the backward run.
    pub fn recompute(&self) -> bool {
        self.has(flag::RECOMPUTE)
    }

    /// Whether its data may be missing when a gradient reads it, and is computed again then.
    pub(super) fn may_be_dropped(&self) -> bool {
        self.has(flag::RESTORED)
    }

    /// Sets [`Variable::recompute`].
    pub fn set_recompute(&self, on: bool) {
        self.set(flag::RECOMPUTE, on);
    }

    /// Whether runs may never clear its memory.
    pub fn persistent(&self) -> bool {
        self.has(flag::PERSISTENT)
    }

    /// Sets [`Variable::persistent`].
    pub fn set_persistent(&self, on: bool) {
        self.set(flag::PERSISTENT, on);
    }

    /// Whether its data is, through in-place functions, that of a variable that must not be cleared.
    pub fn prohibit_clear_data(&self) -> bool {
        self.has(flag::PROHIBIT_CLEAR)
    }

    /// Sets [`Variable::prohibit_clear_data`].
    pub fn set_prohibit_clear_data(&self, on: bool) {
        self.set(flag::PROHIBIT_CLEAR, on);
    }

    /// Whether an in-place function may change its data.
    pub fn allow_modify_data(&self) -> bool {
        arena::with(|a| inplace::may_modify(a, self.ix()))
    }
}
