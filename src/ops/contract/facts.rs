//! Facts that the engine needs about an operation before it runs it. They are computed once its arguments and inputs
//! are bound.

use smallvec::SmallVec;

use crate::ops::Activation;

/// The inputs and outputs that a gradient reads, as bit masks. Bit 63 stands for all further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Bit `i` is set if it reads the data of input `i`.
    pub inputs: u64,
    /// Bit `o` is set if it reads the data of output `o`.
    pub outputs: u64,
}

impl Reads {
    /// Neither input nor output data.
    pub const NOTHING: Self = Self { inputs: 0, outputs: 0 };
    /// Every input.
    pub const INPUTS: Self = Self { inputs: u64::MAX, outputs: 0 };
    /// Every output.
    pub const OUTPUTS: Self = Self { inputs: 0, outputs: u64::MAX };
    /// Every input and output.
    pub const ALL: Self = Self { inputs: u64::MAX, outputs: u64::MAX };

    /// These inputs and no outputs.
    pub const fn inputs(mask: u64) -> Self {
        Self { inputs: mask, outputs: 0 }
    }

    /// True if input `i` is read.
    pub fn input(self, i: usize) -> bool {
        self.inputs >> i.min(63) & 1 == 1
    }

    /// True if output `o` is read.
    pub fn output(self, o: usize) -> bool {
        self.outputs >> o.min(63) & 1 == 1
    }

    /// The union of both.
    pub fn or(self, other: Self) -> Self {
        Self { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }
}

/// The way an output shares the memory of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The output.
    pub output: usize,
    /// True if the values of the input change.
    pub modifies: bool,
}

/// The range of all integers.
pub(crate) const ALL_INTEGERS: [i64; 2] = [i64::MIN, i64::MAX];

/// The range of whole constants, see [`Compute::constants`](crate::ops::Compute::constants). Others count as zero.
pub(crate) fn range_of(constants: impl IntoIterator<Item = f64>) -> [i64; 2] {
    let whole = constants.into_iter().filter(|v| is_whole(*v)).map(|v| v as i64);
    whole.fold([0, 0], |[least, most], v| [least.min(v), most.max(v)])
}

/// True for a whole number that `i64` holds.
pub(crate) fn is_whole(v: f64) -> bool {
    v.fract() == 0.0 && v.abs() < 2.0_f64.powi(63)
}

/// The inputs whose elements an operation compares. It receives integers among them as `f64`, which holds them up to
/// 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// None.
    Nothing,
    /// The inputs that it moves. Its outputs are elements of these, their absolute values, or whole constants.
    Moved,
    /// All inputs. Its outputs are truth values, stored in the type of the context.
    All,
    /// One input, to choose what it does with others. Its outputs have the type of the context.
    One(usize),
}

/// Facts about one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFacts {
    /// The values that the backward kernel reads for its gradient.
    pub reads: Reads,
    /// The values that the rule of its gradient reads.
    pub symbol_reads: Reads,
    /// The output that shares its memory, if any.
    pub alias: Option<Alias>,
    /// True if `forward` writes to it.
    pub overwrites: bool,
    /// True if `forward` moves its elements to the outputs without computing with them.
    pub moves: bool,
}

impl InputFacts {
    /// Conservative facts for an input that does not change.
    pub const UNKNOWN: Self =
        Self { reads: Reads::ALL, symbol_reads: Reads::ALL, alias: None, overwrites: false, moves: false };
}

/// The facts of an operation with bound arguments: inputs read, aliases, overwrites, random numbers, epilogues. For
/// details see the method or constant of the same name in [`Compute`](crate::ops::Compute).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct Facts {
    /// By input, as given. The last entry holds for all further inputs.
    pub(crate) inputs: SmallVec<[InputFacts; 4]>,
    /// The input whose values determine the shapes of the outputs.
    pub shaped_by: Option<usize>,
    /// True if user code or values determine output shapes, so that they cannot be computed under the lock.
    pub sets_up_outside: bool,
    /// True if the gradients of the inputs stay as the user set them.
    pub keeps_gradients: bool,
    /// The input from which derived data is cached between runs.
    pub cached_input: Option<usize>,
    /// The number of inputs after that one that are its parameters.
    pub cached_parameters: usize,
    /// The given inputs that kernels may access in bfloat16, by bit. If not zero, also the first output and its
    /// gradient.
    pub in_bfloat16: u64,
    /// True if `forward` applies a tail to its first output.
    pub hosts_epilogue: bool,
    /// The inputs whose elements `forward` compares.
    pub compares: Compares,
    /// True if `forward` only moves elements.
    pub moves_only: bool,
    /// True if a backward kernel only moves elements, for some shapes at least.
    pub moves_back: bool,
    /// True if kernels compute on arrays in bfloat16 as they are stored.
    pub is_stored: bool,
    /// True if kernels compute on arrays in half precision as they are stored.
    pub is_stored_half: bool,
    /// The given inputs, by bit, that such kernels access as numbers in which they compute.
    pub widened: u64,
    /// The least and the largest whole number that outputs may hold beside elements of moved inputs.
    pub constants: [i64; 2],
    /// If outputs are real numbers though all moved inputs may hold integers: the range of integers that are moved.
    pub makes_reals: Option<[i64; 2]>,
    /// The activation that `forward` computes, if another operation can apply it to its own output before writing it.
    pub activation: Option<Activation>,
    /// True if there is a backward kernel, or user code in its place.
    pub has_backward: bool,
    /// True if `forward` draws random numbers.
    pub is_random: bool,
    /// True if it only computes outputs from inputs, which it reads in the type of the context.
    pub is_plain: bool,
    /// The number of inputs which, if all have one shape, give one output of that shape. Zero if there is none.
    pub keeps_shape_of: usize,
    /// True if the output may alias an input of the same size.
    pub in_place: bool,
    /// True if the engine may clear what it read.
    pub may_clear_inputs: bool,
}

impl Facts {
    /// The facts of an operation implemented by user code, with these facts of its inputs.
    pub fn of_users_code(inputs: impl IntoIterator<Item = InputFacts>) -> Self {
        Self {
            inputs: inputs.into_iter().chain([InputFacts::UNKNOWN]).collect(),
            shaped_by: None,
            sets_up_outside: true,
            keeps_gradients: false,
            cached_input: None,
            cached_parameters: 0,
            in_bfloat16: 0,
            hosts_epilogue: false,
            compares: Compares::Nothing,
            moves_only: false,
            moves_back: false,
            is_stored: false,
            is_stored_half: false,
            widened: 0,
            constants: [0, 0],
            makes_reals: None,
            activation: None,
            has_backward: true,
            is_random: false,
            is_plain: false,
            keeps_shape_of: 0,
            in_place: false,
            may_clear_inputs: true,
        }
    }

    /// The facts of an elementwise operation whose gradients read `reads`. `moves` is true if integers keep their
    /// values.
    pub(crate) const fn elementwise(
        reads: Reads,
        activation: Option<Activation>,
        moves: bool,
        compares: Compares,
        constants: [i64; 2],
        keeps_shape_of: usize,
    ) -> Self {
        let moves_only = moves && matches!(compares, Compares::Nothing);
        let input = InputFacts { reads, symbol_reads: reads, alias: None, overwrites: false, moves };
        Self {
            inputs: SmallVec::from_const([input; 4]),
            shaped_by: None,
            sets_up_outside: false,
            keeps_gradients: false,
            cached_input: None,
            cached_parameters: 0,
            in_bfloat16: 0,
            hosts_epilogue: false,
            compares,
            moves_only,
            moves_back: false,
            is_stored: !moves_only,
            is_stored_half: !moves_only,
            widened: 0,
            constants,
            makes_reals: None,
            activation,
            has_backward: true,
            is_random: false,
            is_plain: true,
            keeps_shape_of,
            in_place: true,
            may_clear_inputs: true,
        }
    }

    /// True if both are equal for `n` inputs.
    pub(crate) fn agree(&self, other: &Self, n: usize) -> bool {
        let rest = |facts: &Self| Self { inputs: SmallVec::new(), ..facts.clone() };
        (0..n).all(|i| self.input(i) == other.input(i)) && rest(self) == rest(other)
    }

    /// The facts that `of` returns for inputs up to `last`, which also stands for all further ones.
    pub(crate) fn by_input(last: usize, of: &dyn Fn(usize) -> InputFacts) -> SmallVec<[InputFacts; 4]> {
        let follow = of(last);
        let own = (0..last).rev().find(|i| of(*i) != follow).map_or(0, |i| i + 1);
        (0..own).map(of).chain([follow]).collect()
    }

    /// The facts of input `i`.
    #[inline]
    fn input(&self, i: usize) -> &InputFacts {
        debug_assert!(!self.inputs.is_empty(), "one entry stands for all that follow");
        &self.inputs[i.min(self.inputs.len() - 1)]
    }

    /// True if integers in one of `n` inputs keep their values, since the operation moves or compares them.
    pub fn reads_integers(&self, n: usize) -> bool {
        matches!(self.compares, Compares::All | Compares::One(_)) || (0..n).any(|i| self.moves(i))
    }

    /// The values that the backward kernel reads for the gradient of input `gx`.
    #[inline]
    pub fn reads(&self, gx: usize) -> Reads {
        self.input(gx).reads
    }

    /// The values that the rule reads for the gradient of input `gx`.
    #[inline]
    pub fn symbol_reads(&self, gx: usize) -> Reads {
        self.input(gx).symbol_reads
    }

    /// The values that a backward run reads for the gradient of input `gx`: by its kernel, or by its rule if there is
    /// no kernel.
    #[inline]
    pub fn backward_reads(&self, gx: usize) -> Reads {
        if self.has_backward { self.reads(gx) } else { self.symbol_reads(gx) }
    }

    /// The values that kernel or rule read for the gradient of input `gx`.
    #[inline]
    pub fn either_reads(&self, gx: usize) -> Reads {
        self.reads(gx).or(self.symbol_reads(gx))
    }

    /// The output that shares memory with input `i`, if any.
    #[inline]
    pub fn alias(&self, i: usize) -> Option<Alias> {
        self.input(i).alias
    }

    /// The first of `n` inputs that shares memory with output `o`, if any.
    pub fn aliased_by(&self, o: usize, n: usize) -> Option<usize> {
        (0..n).find(|i| self.alias(*i).is_some_and(|alias| alias.output == o))
    }

    /// True if output `o` shares memory with one of `n` inputs.
    pub fn shares_output(&self, o: usize, n: usize) -> bool {
        self.aliased_by(o, n).is_some()
    }

    /// True if `forward` writes to input `i` without returning it as an output.
    #[inline]
    pub fn overwrites(&self, i: usize) -> bool {
        self.input(i).overwrites
    }

    /// True if the elements of input `i` are moved to the outputs unchanged.
    #[inline]
    pub fn moves(&self, i: usize) -> bool {
        self.input(i).moves
    }

    /// True if kernels that compute on stored elements access input `i` as numbers in which they compute.
    #[inline]
    pub fn widens(&self, i: usize) -> bool {
        self.widened >> i.min(63) & 1 == 1
    }

    /// True if input `i` is changed in place, as an output.
    #[inline]
    pub fn modifies(&self, i: usize) -> bool {
        self.alias(i).is_some_and(|alias| alias.modifies)
    }

    /// True if another run on the same `n` inputs computes the same values and changes no input.
    pub fn is_repeatable(&self, n: usize) -> bool {
        !self.sets_up_outside && !(0..n).any(|i| self.modifies(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::find;

    /// The facts that an operation with all inputs returns for each input.
    fn facts(name: &str, present: u64) -> Facts {
        find(name).expect("is registered").bind(&[], present).expect("binds").facts().clone()
    }

    #[test]
    fn the_last_entry_describes_all_further_inputs() {
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
    fn an_operation_that_changes_an_input_is_not_repeatable() {
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
