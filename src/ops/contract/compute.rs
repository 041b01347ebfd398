//! An operation as its author writes it: shapes, kernels, gradient rule, and facts about them.

use crate::array::{DType, Shape};
use crate::kernels::{Float, Movable, Stored};
use crate::ops::{
    Activation, Alias, Arg, Backward, ChunkedForward, Compares, Declared, Facts, InputShapes, Loops, Reads,
    Run, Shapes, State, Sym, Symbols, Value,
};
use crate::{Error, Result};

/// An operation with its constant arguments, as its author writes it. The engine uses it as an
/// [`Operation`](crate::ops::Operation).
///
/// Inputs are numbered as declared, even if optional ones are missing.
pub trait Compute: Declared {
    /// Shapes of the outputs. Only this method may refuse inputs.
    ///
    /// # Errors
    /// If shapes or arguments are invalid.
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes>;

    /// Writes every element of each output. By default [`Compute::stored_forward`] or [`Compute::move_forward`].
    ///
    /// # Errors
    /// Only for conditions that cannot be checked earlier: an index out of range, no memory.
    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        if Self::IS_STORED { self.stored_forward(run) } else { self.move_forward(run) }
    }

    /// [`Compute::forward`] of an operation with [`Compute::IS_STORED`].
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        self.move_forward(run)
    }

    /// True if [`Compute::stored_forward`] reads and writes arrays in bfloat16 as they are stored. Numbers are widened
    /// in registers.
    const IS_STORED: bool = false;

    /// As [`Compute::IS_STORED`], for half precision too.
    const IS_STORED_HALF: bool = false;

    /// The inputs, by bit, that [`Compute::stored_forward`] and [`Compute::stored_backward`] access as numbers of the
    /// type in which they compute: [`Run::wide`], [`Run::overwrite_wide`], [`Backward::wide`], [`Backward::gx_wide`].
    /// These inputs may be stored in any type, and their gradients may be added to.
    const WIDENED: u64 = 0;

    /// True if [`Compute::stored_backward`] reads and writes gradients of 16 bits as they are stored. It never adds to
    /// them.
    fn is_stored_back(&self, x: &InputShapes<'_>) -> bool {
        let _ = x;
        false
    }

    /// [`Compute::backward`] of an operation with [`Compute::IS_STORED`].
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        self.move_backward(run)
    }

    /// [`Compute::forward`] of an operation with [`Compute::MOVES_ONLY`].
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let _ = run;
        Err(Error::NotImplemented(format!("{}: has no forward kernel", Self::SPEC.name)))
    }

    /// True if outputs consist of unchanged elements of inputs and of constants from [`Run::constant`]. Arrays of 16
    /// bits are then moved as they are. Inputs that are not moved are only compared with zero.
    const MOVES_ONLY: bool = false;

    /// True if [`Compute::move_backward`] computes the gradients: it moves elements, or adds them to zeros.
    const MOVES_BACK: bool = false;

    /// True if [`Compute::move_backward`] adds at most one element to each zero.
    fn moves_back(&self, x: &InputShapes<'_>) -> bool {
        let _ = x;
        Self::MOVES_BACK
    }

    /// [`Compute::backward`] of an operation with [`Compute::MOVES_BACK`].
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let _ = run;
        Err(Error::NotImplemented(format!("{}: has no backward kernel", Self::SPEC.name)))
    }

    /// Writes or adds the gradient of each requested input. Without it (see [`Compute::HAS_BACKWARD`]) the engine
    /// runs [`Compute::gradient`] instead.
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        if Self::MOVES_BACK { self.move_backward(run) } else { self.stored_backward(run) }
    }

    /// True if [`Compute::backward`] is implemented.
    const HAS_BACKWARD: bool = true;

    /// The gradients of the inputs, as a rule on symbols. `None` for a gradient that is always zero.
    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>>;

    /// The values that the backward kernel reads for the gradient of input `gx`.
    fn reads(&self, gx: usize) -> Reads {
        let _ = gx;
        Reads::ALL
    }

    /// The values that [`Compute::gradient`] reads for input `gx`, if they differ.
    fn symbol_reads(&self, gx: usize) -> Reads {
        self.reads(gx)
    }

    /// The element type of output `o`. `None` for the type in which the function computes.
    fn output(&self, o: usize) -> Option<DType> {
        let _ = o;
        None
    }

    /// The output that shares memory with input `i`, if any.
    fn alias(&self, i: usize) -> Option<Alias> {
        let _ = i;
        None
    }

    /// True if `forward` writes to input `i`, such as running statistics.
    fn overwrites(&self, i: usize) -> bool {
        let _ = i;
        false
    }

    /// True if the outputs consist of unchanged elements of input `i`, and of constants from [`Run::constant`]. If
    /// all such inputs hold integers, the outputs keep their type. `forward` then receives their bits as `f64`, and
    /// must only copy them.
    fn moves(&self, i: usize) -> bool {
        let _ = i;
        false
    }

    /// The least and the largest whole number that the outputs may hold beside elements of moved inputs. Outputs are
    /// `i64` if the integer type of the inputs does not hold both.
    fn constants(&self) -> [i64; 2] {
        [0, 0]
    }

    /// The range of integers that are moved, if outputs are real numbers though all moved inputs may hold integers.
    /// This happens if an argument is a fraction, or if only a part of the elements is moved. The engine refuses
    /// integers of this range that the type of the outputs does not hold.
    fn makes_reals(&self) -> Option<[i64; 2]> {
        None
    }

    /// The inputs whose elements `forward` compares.
    const COMPARES: Compares = Compares::Nothing;

    /// The number of inputs, all of them, which give one output of their shape if they have one shape. Then the engine
    /// need not call [`Compute::shapes`]. Zero if shapes depend on more.
    const KEEPS_SHAPE_OF: usize = 0;

    /// The loops that compute in `f64` (if `double`) or `f32`, for an elementwise operation: each element of the
    /// output and of the gradients depends only on the input elements at the same index. The engine may run the loops
    /// on any part of arrays of one shape.
    fn loops(&self, double: bool) -> Option<Loops> {
        let _ = double;
        None
    }

    /// True if the output may alias an input of the same size: `forward` must not read element i after writing it.
    /// Implied by `loops`.
    const IN_PLACE: bool = false;

    /// True if `forward` applies [`Run::tail`] to its first output.
    const HOSTS_EPILOGUE: bool = false;

    /// True if [`Compute::chunked_forward`] can replace `forward`.
    fn fits_epilogue(&self, x: &InputShapes<'_>) -> bool {
        let _ = x;
        false
    }

    /// The in-place, chunked form of `forward` on input 0, for fusion as an epilogue. Saves the same state as
    /// `forward`.
    fn chunked_forward<'a, T: Float>(&self, run: Run<'a, T>) -> Option<&'a (dyn ChunkedForward + 'static)> {
        let _ = run;
        None
    }

    /// The activation that `forward` computes, if another operation can apply it to its own output before writing it.
    const ACTIVATION: Option<Activation> = None;

    /// True if `forward` draws random numbers.
    const IS_RANDOM: bool = false;

    /// True if it draws random numbers with its arguments.
    fn is_random(&self) -> bool {
        Self::IS_RANDOM
    }

    /// The counts and values that runs keep in the function for later runs, besides random numbers. Checkpoints hold
    /// them. None if results depend only on the inputs. Empty before the first run.
    fn progress(&self, state: &State) -> Option<Vec<u8>> {
        let _ = state;
        None
    }

    /// Writes to an empty state what [`Compute::progress`] returned. Returns false for other bytes.
    fn resume(&self, state: &mut State, progress: &[u8]) -> bool {
        let _ = (state, progress);
        false
    }

    /// The input whose values determine the shapes of the outputs, if any.
    const SHAPED_BY: Option<usize> = None;

    /// A required input from which derived data is cached between runs, keyed by the fingerprint of its values. See
    /// [`Run::fingerprint`] and [`Run::input_cache`].
    const CACHED_INPUT: Option<usize> = None;

    /// The number of inputs after [`Compute::CACHED_INPUT`] that are its parameters, such as scales. Data derived from
    /// them is cached with that input.
    const CACHED_PARAMETERS: usize = 0;

    /// The inputs, by bit, whose elements and gradients the kernels may access in bfloat16, through [`Run::values`],
    /// [`Backward::values`] and [`Backward::gx_values`]. If not zero, this also holds for the first output and its
    /// gradient: [`Run::y_values`], [`Backward::gy_values`].
    const IN_BFLOAT16: u64 = 0;

    /// True if the gradients of the inputs stay as the user set them: no backward kernel is run.
    fn keeps_gradients(&self) -> bool {
        false
    }

    /// The facts if all inputs are given and no argument changes them. Then they are not computed for each bound
    /// operation.
    const FACTS: Option<Facts> = None;

    /// The number of multiplications in `forward`, if that is large for each element it touches. The engine uses this
    /// estimate to decide which values are worth keeping.
    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        let _ = (x, y);
        0
    }

    /// True if the engine may clear what this function read. `Sink` forbids it.
    const MAY_CLEAR_INPUTS: bool = true;

    /// The effective value of an argument that was left open, by its name in `info.args`. By default `axis` is the
    /// last axis of the first input, `axes` are all of them, and `p` is the Euclidean norm.
    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        usually_open(arg, x)
    }

    /// Arguments as shown in `info.args` for inputs of these shapes.
    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        shown(Self::SPEC.args, self.values(), &|arg| self.open(arg, x))
    }
}

/// The usual value of an argument that was left open: the last axis for `axis`, all axes for `axes`.
fn usually_open(arg: &str, x: &InputShapes<'_>) -> Value {
    match (arg, x.find(0)) {
        ("axis", Some(x)) => Value::Int(x.ndim() as i64 - 1),
        ("axes", Some(x)) => Value::Ints((0..x.ndim() as i64).collect()),
        ("p", _) => Value::Float(2.0),
        _ => Value::None,
    }
}

/// Values of arguments with their names in `info.args`. Uses `open` for values that were left open.
fn shown(
    args: &'static [Arg],
    values: Vec<Value>,
    open: &dyn Fn(&'static str) -> Value,
) -> Vec<(&'static str, Value)> {
    let shown = |(arg, value): (&Arg, Value)| match value {
        Value::None => (arg.info, open(arg.info)),
        Value::Bounds(given) => match open(arg.info) {
            Value::Ints(open) if open.len() == given.len() => {
                (arg.info, Value::Ints(given.iter().zip(open).map(|(v, open)| v.unwrap_or(open)).collect()))
            }
            _ => (arg.info, Value::Bounds(given)),
        },
        given => (arg.info, given),
    };
    args.iter().zip(values).map(shown).collect()
}
