//! An operation as its author writes it: shapes, kernels, the formula of its gradient, and facts about all these.

use crate::array::{DType, Shape};
use crate::kernels::Float;
use crate::ops::{
    Activation, Arg, Backward, Declared, Facts, InputShapes, Loops, Pieces, Run, Shapes, Sym, Symbols, Value,
};
use crate::{Error, Result};

/// Which inputs and outputs a gradient reads, as bit masks; bits from 63 on stand for all that follow.
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

    /// Whether input `i` is read.
    pub fn input(self, i: usize) -> bool {
        self.inputs >> i.min(63) & 1 == 1
    }

    /// Whether output `o` is read.
    pub fn output(self, o: usize) -> bool {
        self.outputs >> o.min(63) & 1 == 1
    }

    /// What either reads.
    pub fn or(self, other: Self) -> Self {
        Self { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }
}

/// How an output shares the memory of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The output.
    pub output: usize,
    /// Whether the input's values change.
    pub modifies: bool,
}

/// An operation with its constant arguments, as its author writes it; [`Operation`](crate::ops::Operation) is how the engine sees it.
///
/// Inputs are numbered as declared, also when optional ones are missing.
pub trait Compute: Declared {
    /// Shapes of the outputs: the only part that can refuse its inputs.
    ///
    /// # Errors
    /// When shapes or arguments do not fit.
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes>;

    /// Writes every element of each output.
    ///
    /// # Errors
    /// Only for what could not be known before: an index out of range, no memory.
    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()>;

    /// Writes or adds the gradient of each input that is wanted. Left out (see [`Compute::HAS_BACKWARD`]), the
    /// engine runs [`Compute::gradient`] instead.
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let _ = run;
        Err(Error::NotImplemented(format!("{}: has no backward kernel", Self::SPEC.name)))
    }

    /// Whether [`Compute::backward`] is written out.
    const HAS_BACKWARD: bool = true;

    /// The gradients of the inputs, as a formula on symbols; `None` where there is none (it counts as zero).
    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>>;

    /// What the backward kernel reads for the gradient of input `gx`.
    fn reads(&self, gx: usize) -> Reads {
        let _ = gx;
        Reads::ALL
    }

    /// What [`Compute::gradient`] reads for input `gx`, where it differs.
    fn symbol_reads(&self, gx: usize) -> Reads {
        self.reads(gx)
    }

    /// Type of the elements of output `o`: `None` is the type that the function computes in.
    fn output(&self, o: usize) -> Option<DType> {
        let _ = o;
        None
    }

    /// The output that shares memory with input `i`, if one does.
    fn alias(&self, i: usize) -> Option<Alias> {
        let _ = i;
        None
    }

    /// Whether `forward` writes into input `i` (running statistics).
    fn overwrites(&self, i: usize) -> bool {
        let _ = i;
        false
    }

    /// True if the outputs consist of unchanged elements of input `i`, and of constants from [`Run::constant`]. If all inputs
    /// of which this is true hold integers, the outputs keep their type, and `forward` sees their bits as `f64`: it must only
    /// copy them.
    fn moves(&self, i: usize) -> bool {
        let _ = i;
        false
    }

    /// The loops that compute in `f64` (if `double`) or `f32`, where each element of the output follows from those of the
    /// inputs in its place, and so with gradients: they may be run on any part of arrays of one shape.
    fn loops(&self, double: bool) -> Option<Loops> {
        let _ = double;
        None
    }

    /// Whether `forward` may have its output in the memory of an input of that size, of which it reads no element after it
    /// has written that one. (What has `loops` may.)
    const IN_PLACE: bool = false;

    /// Whether `forward` takes its first output through [`Run::tail`].
    const HOSTS_EPILOGUE: bool = false;

    /// Whether [`Compute::pieces`] does what `forward` does.
    fn goes_along(&self, x: &InputShapes<'_>) -> bool {
        let _ = x;
        false
    }

    /// What `forward` does to its first input, piece by piece in place, made of the others; it keeps what a forward run keeps.
    fn pieces<'a, T: Float>(&self, run: Run<'a, T>) -> Option<&'a (dyn Pieces + 'static)> {
        let _ = run;
        None
    }

    /// What `forward` is, if another operation can do it on the way of its own output to memory.
    const ACTIVATION: Option<Activation> = None;

    /// Whether `forward` draws random numbers.
    const IS_RANDOM: bool = false;

    /// Whether it draws them with the arguments that it has.
    fn is_random(&self) -> bool {
        Self::IS_RANDOM
    }

    /// The input whose values decide on the shapes of the outputs, if one does.
    const SHAPED_BY: Option<usize> = None;

    /// The input, given always, of which something is kept from run to run under the name of its values: see [`Run::name`] and
    /// [`Run::lasting`].
    const CACHED_INPUT: Option<usize> = None;

    /// Whether the gradients of the inputs stay what the user made them: no backward kernel is run.
    fn keeps_gradients(&self) -> bool {
        false
    }

    /// What holds where all inputs are given, if no argument changes it: then nothing is asked of each operation that is bound.
    const FACTS: Option<Facts> = None;

    /// How many products `forward` adds up, where that is many for each element that it touches: an estimate by which
    /// the engine tells what is worth keeping.
    fn products(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        let _ = (x, y);
        0
    }

    /// Whether the engine may clear what this function read (`Sink` forbids it).
    const MAY_CLEAR_INPUTS: bool = true;

    /// What an argument stands for that was left open, by its name in `info.args`: unless an operation says otherwise,
    /// `axis` for the last axis of the first input, `axes` for all of them, and `p` for the Euclidean norm.
    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        usually_open(arg, x)
    }

    /// Arguments as `info.args` shows them for inputs of these shapes.
    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        shown(Self::SPEC.args, self.values(), &|arg| self.open(arg, x))
    }
}

fn usually_open(arg: &str, x: &InputShapes<'_>) -> Value {
    match (arg, x.find(0)) {
        ("axis", Some(x)) => Value::Int(x.ndim() as i64 - 1),
        ("axes", Some(x)) => Value::Ints((0..x.ndim() as i64).collect()),
        ("p", _) => Value::Float(2.0),
        _ => Value::None,
    }
}

/// Values of arguments with their names in `info.args`, and what `open` says in the place of what was left open.
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
