//! Symbols: numbers whose arithmetic builds a graph. A formula on [`Number`](crate::kernels::Number), evaluated on
//! symbols, becomes a graph of public operations, which can be differentiated to any order.

mod number;
mod tape;

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::array::Shape;
use crate::ops::Op;
use crate::ops::contract::shapes::position;
use crate::{Error, Result};
pub(crate) use tape::Tape;

/// A variable of the graph under construction, or a constant.
#[derive(Clone, Copy, Debug)]
pub enum Sym {
    /// A variable of the builder, by number.
    Node(u32),
    /// The same number for all elements.
    Const(f64),
}

/// A graph to which symbols can add functions.
pub trait Builder {
    /// Adds a function of variables of this builder and returns its outputs.
    ///
    /// # Errors
    /// If the operation refuses its inputs.
    fn apply(&mut self, op: Op, x: &[u32]) -> Result<SmallVec<[u32; 1]>>;
    /// The shape of a variable.
    fn shape(&self, v: u32) -> Shape;
}

/// One call of `build`: the builder that receives operations, and the first error.
struct Session {
    /// The builder, valid during the call.
    builder: *mut dyn Builder,
    /// The first error.
    error: Option<Error>,
    /// A record of what is built, if requested.
    tape: Option<Vec<tape::TapeStep>>,
}

thread_local! {
    /// The active calls of `build` on this thread, the innermost last.
    static SESSIONS: RefCell<Vec<Session>> = const { RefCell::new(Vec::new()) };
}

/// Registers the thread-local with a destructor.
pub(crate) fn begin_thread() {
    let _ = SESSIONS.try_with(|_| ());
}

/// Evaluates `formula`, whose symbols build on `builder`.
///
/// # Errors
/// The first error of the builder. The result of the formula is then discarded.
pub fn build<R>(builder: &mut dyn Builder, formula: impl FnOnce() -> R) -> Result<R> {
    /// Ends the session when it is dropped.
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            SESSIONS.with(|s| s.borrow_mut().pop());
        }
    }
    // SAFETY: only the lifetime is erased. The session is popped before this function returns, by `Pop` on unwinding.
    let builder: &'static mut dyn Builder = unsafe { std::mem::transmute(builder) };
    SESSIONS.with(|s| s.borrow_mut().push(Session { builder, error: None, tape: None }));
    let pop = Pop;
    let result = formula();
    let error = SESSIONS.with(|s| s.borrow_mut().last_mut().and_then(|session| session.error.take()));
    drop(pop);
    error.map_or(Ok(result), Err)
}

/// Calls `f` with the builder of the innermost session. Returns `otherwise()` after an error.
pub(crate) fn with_builder<R>(
    f: impl FnOnce(&mut dyn Builder) -> Result<R>,
    otherwise: impl FnOnce() -> R,
) -> R {
    let (builder, failed) = SESSIONS.with(|s| {
        let s = s.borrow();
        let session = s.last().unwrap_or_else(|| unreachable!("symbols live inside `build` only"));
        (session.builder, session.error.is_some())
    });
    if failed {
        return otherwise();
    }
    // SAFETY: the session is on the stack of `build`, which borrows the builder exclusively and is not using it now.
    match f(unsafe { &mut *builder }) {
        Ok(r) => r,
        Err(error) => {
            SESSIONS.with(|s| s.borrow_mut().last_mut().map(|session| session.error = Some(error)));
            otherwise()
        }
    }
}

impl Sym {
    /// The shape of a symbol. A constant is a scalar.
    pub fn shape(self) -> Shape {
        match self {
            Self::Node(v) => with_builder(|b| Ok(b.shape(v)), Shape::scalar),
            Self::Const(_) => Shape::scalar(),
        }
    }

    /// Calls the builder with `op` on variables, and records the call if a record is requested.
    pub(crate) fn build_op(op: Op, x: &[u32]) -> SmallVec<[Self; 1]> {
        let noted =
            SESSIONS.with(|s| s.borrow().last().is_some_and(|s| s.tape.is_some())).then(|| op.clone());
        let y = with_builder(|b| b.apply(op, x), || SmallVec::from_elem(0, 8));
        if let Some(op) = noted {
            let nodes = |v: &[u32]| v.iter().map(|v| Self::Node(*v)).collect();
            let step = tape::TapeStep { op, x: nodes(x), y: y.iter().map(|v| Self::Node(*v)).collect() };
            SESSIONS.with(|s| {
                s.borrow_mut().last_mut().and_then(|s| {
                    let _: () = s.tape.as_mut()?.push(step);
                    Some(())
                })
            });
        }
        y.into_iter().map(Self::Node).collect()
    }
}

/// The symbols available to a gradient rule: inputs, outputs and output gradients.
pub struct Symbols {
    /// Given inputs. Reading one that [`Compute::symbol_reads`](crate::ops::Compute::symbol_reads) does not declare is
    /// an error.
    pub(crate) x: SmallVec<[Sym; 4]>,
    /// Outputs.
    pub(crate) y: SmallVec<[Sym; 2]>,
    /// Gradients of the outputs.
    pub(crate) gy: SmallVec<[Sym; 2]>,
    /// True for each requested gradient.
    pub(crate) wanted: SmallVec<[bool; 4]>,
    /// The inputs that were given, one bit each.
    pub(crate) present: u64,
}

impl Symbols {
    /// The symbols of one function with all inputs.
    pub fn new(x: &[Sym], y: &[Sym], gy: &[Sym], wanted: &[bool]) -> Self {
        Self {
            x: SmallVec::from_slice(x),
            y: SmallVec::from_slice(y),
            gy: SmallVec::from_slice(gy),
            wanted: SmallVec::from_slice(wanted),
            present: u64::MAX,
        }
    }

    /// The number of given inputs.
    pub fn n_inputs(&self) -> usize {
        self.x.len()
    }

    /// The number of outputs.
    pub fn n_outputs(&self) -> usize {
        self.y.len()
    }

    /// True if input `i` was given.
    pub fn has(&self, i: usize) -> bool {
        position(self.present, i).is_some_and(|at| at < self.x.len())
    }

    /// Input `i`.
    pub fn x(&self, i: usize) -> Sym {
        self.x[position(self.present, i).unwrap_or(usize::MAX)]
    }

    /// Output `o`.
    pub fn y(&self, o: usize) -> Sym {
        self.y[o]
    }

    /// The gradient of output `o`.
    pub fn gy(&self, o: usize) -> Sym {
        self.gy[o]
    }

    /// True if the gradient of input `i` is requested.
    pub fn wants(&self, i: usize) -> bool {
        position(self.present, i).is_some_and(|at| self.wanted.get(at) == Some(&true))
    }
}
