//! What the engine asks of an operation before it runs it: written down once, when its arguments and its inputs are known.

use smallvec::SmallVec;

use crate::ops::{Activation, Alias, Reads};

/// What holds for one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFacts {
    /// What the backward kernel reads for its gradient.
    pub reads: Reads,
    /// What the formula of its gradient reads.
    pub symbol_reads: Reads,
    /// The output that shares its memory, if one does.
    pub alias: Option<Alias>,
    /// Whether `forward` writes into it.
    pub overwrites: bool,
    /// True if `forward` moves its elements to the outputs without computing with them.
    pub moves: bool,
}

impl InputFacts {
    /// Of an input of which nothing is known but that it stays as it is.
    pub const UNKNOWN: Self =
        Self { reads: Reads::ALL, symbol_reads: Reads::ALL, alias: None, overwrites: false, moves: false };
}

/// The facts of an operation whose constant arguments are bound: what it reads, aliases, overwrites, draws and hosts. Each
/// is explained where an author writes it, in [`Compute`](crate::ops::Compute).
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact, and none follows from another
pub struct Facts {
    /// By input, as given; the last entry holds for all inputs that follow.
    pub(crate) inputs: SmallVec<[InputFacts; 4]>,
    /// The input whose values decide on the shapes of the outputs.
    pub shaped_by: Option<usize>,
    /// Whether shapes of outputs cannot be told under the lock: user's code or values decide.
    pub sets_up_outside: bool,
    /// Whether the gradients of the inputs stay what the user made them.
    pub keeps_gradients: bool,
    /// The input of which something is kept from run to run.
    pub cached_input: Option<usize>,
    /// Whether `forward` takes its first output through a tail.
    pub hosts_epilogue: bool,
    /// What `forward` is, if another operation can do it on its output's way to memory.
    pub activation: Option<Activation>,
    /// Whether there is a backward kernel, or user's code in its place.
    pub has_backward: bool,
    /// Whether `forward` draws random numbers.
    pub is_random: bool,
    /// Whether it does nothing but compute outputs from inputs, which it reads in the type that the context computes in.
    pub is_plain: bool,
    /// Whether `forward` may have its output in the memory of an input of that size.
    pub in_place: bool,
    /// Whether the engine may clear what it read.
    pub may_clear_inputs: bool,
}

impl Facts {
    /// Those of an operation that runs by user's code, of whose inputs this is known.
    pub fn of_users_code(inputs: impl IntoIterator<Item = InputFacts>) -> Self {
        Self {
            inputs: inputs.into_iter().chain([InputFacts::UNKNOWN]).collect(),
            shaped_by: None,
            sets_up_outside: true,
            keeps_gradients: false,
            cached_input: None,
            hosts_epilogue: false,
            activation: None,
            has_backward: true,
            is_random: false,
            is_plain: false,
            in_place: false,
            may_clear_inputs: true,
        }
    }

    /// Those of an elementwise operation whose gradients read `reads`; `moves` is true of the identity.
    pub(crate) const fn elementwise(reads: Reads, activation: Option<Activation>, moves: bool) -> Self {
        let input = InputFacts { reads, symbol_reads: reads, alias: None, overwrites: false, moves };
        Self {
            inputs: SmallVec::from_const([input; 4]),
            shaped_by: None,
            sets_up_outside: false,
            keeps_gradients: false,
            cached_input: None,
            hosts_epilogue: false,
            activation,
            has_backward: true,
            is_random: false,
            is_plain: true,
            in_place: true,
            may_clear_inputs: true,
        }
    }

    /// Whether the same holds for `n` inputs.
    pub(crate) fn agree(&self, other: &Self, n: usize) -> bool {
        let rest = |facts: &Self| format!("{:?}", Self { inputs: SmallVec::new(), ..facts.clone() });
        (0..n).all(|i| self.input(i) == other.input(i)) && rest(self) == rest(other)
    }

    /// What `of` says of inputs up to `last`, which stands for those that follow.
    pub(crate) fn by_input(last: usize, of: &dyn Fn(usize) -> InputFacts) -> SmallVec<[InputFacts; 4]> {
        let follow = of(last);
        let own = (0..last).rev().find(|i| of(*i) != follow).map_or(0, |i| i + 1);
        (0..own).map(of).chain([follow]).collect()
    }

    #[inline]
    fn input(&self, i: usize) -> &InputFacts {
        debug_assert!(!self.inputs.is_empty(), "one entry stands for all that follow");
        &self.inputs[i.min(self.inputs.len() - 1)]
    }

    /// What the backward kernel reads for the gradient of input `gx`.
    #[inline]
    pub fn reads(&self, gx: usize) -> Reads {
        self.input(gx).reads
    }

    /// What the formula of the gradient of input `gx` reads.
    #[inline]
    pub fn symbol_reads(&self, gx: usize) -> Reads {
        self.input(gx).symbol_reads
    }

    /// What a backward run reads for the gradient of input `gx`: the kernel, or the formula where there is none.
    #[inline]
    pub fn backward_reads(&self, gx: usize) -> Reads {
        if self.has_backward { self.reads(gx) } else { self.symbol_reads(gx) }
    }

    /// What a gradient of input `gx` reads that is computed in either way.
    #[inline]
    pub fn either_reads(&self, gx: usize) -> Reads {
        self.reads(gx).or(self.symbol_reads(gx))
    }

    /// The output that shares memory with input `i`, if one does.
    #[inline]
    pub fn alias(&self, i: usize) -> Option<Alias> {
        self.input(i).alias
    }

    /// The first of `n` inputs whose memory output `o` is, if one is.
    pub fn aliased_by(&self, o: usize, n: usize) -> Option<usize> {
        (0..n).find(|i| self.alias(*i).is_some_and(|alias| alias.output == o))
    }

    /// Whether output `o` is the memory of one of `n` inputs.
    pub fn shares_output(&self, o: usize, n: usize) -> bool {
        self.aliased_by(o, n).is_some()
    }

    /// Whether `forward` writes into input `i`, which no output is.
    #[inline]
    pub fn overwrites(&self, i: usize) -> bool {
        self.input(i).overwrites
    }

    /// True if the elements of input `i` are moved to the outputs as they are.
    #[inline]
    pub fn moves(&self, i: usize) -> bool {
        self.input(i).moves
    }

    /// Whether input `i` is changed in place, as an output.
    #[inline]
    pub fn modifies(&self, i: usize) -> bool {
        self.alias(i).is_some_and(|alias| alias.modifies)
    }

    /// Whether it computes the same of the same `n` inputs when it runs again, and changes none of them.
    pub fn is_repeatable(&self, n: usize) -> bool {
        !self.sets_up_outside && !(0..n).any(|i| self.modifies(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::find;

    /// What an operation of inputs that are all given says of the inputs in turn.
    fn facts(name: &str, present: u64) -> Facts {
        find(name).expect("is registered").bind(&[], present).expect("binds").facts().clone()
    }

    #[test]
    fn an_entry_stands_for_all_inputs_that_follow() {
        let sum = facts("add_n", u64::MAX);
        assert_eq!(sum.inputs.len(), 1);
        let product = facts("mul_n", u64::MAX);
        for gx in [0, 1, 2, 3, 62] {
            assert_eq!(product.reads(gx), Reads::inputs(!(1 << gx)), "{gx}");
        }
        for gx in [63, 64, 1000] {
            assert_eq!(product.reads(gx), Reads::INPUTS, "{gx}");
        }
    }

    #[test]
    fn facts_of_inputs_are_numbered_as_given() {
        let of =
            |i| InputFacts { reads: Reads::inputs(1_u64 << i), overwrites: i == 1, ..InputFacts::UNKNOWN };
        let own = Facts { inputs: Facts::by_input(3, &of), ..Facts::of_users_code([]) };
        assert_eq!((own.inputs.len(), own.overwrites(1), own.overwrites(2)), (4, true, false));
        assert_eq!(own.reads(9), Reads::inputs(8));
    }

    #[test]
    fn what_is_changed_in_place_is_not_repeatable() {
        let changed = Some(Alias { output: 1, modifies: true });
        let own =
            Facts::of_users_code([InputFacts::UNKNOWN, InputFacts { alias: changed, ..InputFacts::UNKNOWN }]);
        let own = Facts { sets_up_outside: false, ..own };
        assert!(own.is_repeatable(1) && !own.is_repeatable(2));
        assert_eq!(
            (own.aliased_by(1, 2), own.aliased_by(0, 2), own.shares_output(1, 1)),
            (Some(1), None, false)
        );
    }
}
