//! Derivatives that are kernels: the gradient for one input of a function as an operation of the graph.

use smallvec::SmallVec;

use crate::kernels::Float;
use crate::ops::contract::symbol::Tape;
use crate::ops::{
    Compute, Declared, Input, InputShapes, Kind, Memory, Op, Run, Shapes, Spec, Sym, Symbols, Value, one,
};
use crate::{Error, Result};

/// An operation whose gradient rule is its backward kernel, run as a separate operation.
///
/// The kernel reads inputs and the gradient of the single output, and no state of the forward run.
pub(crate) trait ByKernel: Compute {
    /// True if the output is linear in input `i` for fixed other inputs. Then the derivative by it can be
    /// differentiated again.
    fn is_linear(&self, i: usize) -> bool;

    /// The derivative by the wanted input as a formula, which is differentiated in place of the kernel. None if there
    /// is none.
    fn formula(&self, s: &Symbols) -> Option<Sym> {
        let _ = s;
        None
    }
}

/// The gradient that the backward kernel of `of` computes for input `wanted`, from the given inputs and the gradient
/// of the output.
#[derive(Clone)]
struct Derivative<C> {
    /// The operation to differentiate.
    of: C,
    /// The index of the input whose gradient is computed.
    wanted: usize,
    /// The inputs that were given.
    given: SmallVec<[usize; 6]>,
}

impl<C: Compute> Declared for Derivative<C> {
    const SPEC: Spec = Spec {
        name: "derivative",
        type_name: "Derivative",
        raw_doc: " The derivative of one gradient of an operation.",
        inputs: &[Input { name: "x", kind: Kind::list }],
        args: &[],
    };
    /// Refuses: only gradients make this operation.
    fn bind(_: &[Value]) -> Result<Self> {
        Err(Error::NotImplemented("derivative: is made by gradients only".into()))
    }
    fn values(&self) -> Vec<Value> {
        Vec::new()
    }
}

/// A derivative that does not exist. Requesting it is an error of the run.
#[derive(Clone)]
struct NoDerivative(&'static str);

impl Declared for NoDerivative {
    const SPEC: Spec = Spec {
        name: "no_derivative",
        type_name: "NoDerivative",
        raw_doc: " A derivative that does not exist.",
        inputs: &[Input { name: "x", kind: Kind::float }],
        args: &[],
    };
    /// Refuses: only gradients make this operation.
    fn bind(_: &[Value]) -> Result<Self> {
        Err(Error::NotImplemented("no_derivative: is made by gradients only".into()))
    }
    fn values(&self) -> Vec<Value> {
        Vec::new()
    }
}

impl Compute for NoDerivative {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        Err(Error::NotImplemented(format!(
            "{}: expected a derivative of lower order, got one that is not there",
            self.0
        )))
    }

    fn forward<T: Float>(&self, _: &mut Run<'_, T>) -> Result<()> {
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }
}

impl<C: ByKernel> Derivative<C> {
    /// The derivative by input `wanted`, from `inputs` and the gradient `gy`.
    fn sym(&self, wanted: usize, inputs: &[Sym], gy: Sym) -> Sym {
        let of = Self { of: self.of.clone(), wanted, given: self.given.clone() };
        let all: SmallVec<[Sym; 8]> = inputs.iter().copied().chain([gy]).collect();
        Sym::apply(of, &all)
    }

    /// The mask of the inputs that are given.
    fn mask(&self) -> u64 {
        if self.given.len() == C::SPEC.inputs.len() {
            return u64::MAX;
        }
        self.given.iter().fold(0, |mask, i| mask | 1 << i)
    }

    /// The position of input `wanted` among the given inputs.
    fn place(&self) -> usize {
        self.given.iter().position(|i| *i == self.wanted).unwrap_or(usize::MAX)
    }
}

/// The rule of an operation with a [`ByKernel`]: its kernel, for each requested input, on the `given` inputs.
pub(crate) fn by_kernel<C: ByKernel>(op: &C, s: &Symbols, given: impl Fn(usize) -> bool) -> Vec<Option<Sym>> {
    let n = C::SPEC.inputs.len();
    let given: SmallVec<[usize; 6]> = (0..n).filter(|i| s.has(*i) && given(*i)).collect();
    let inputs: SmallVec<[Sym; 6]> = given.iter().map(|i| s.x(*i)).collect();
    let rule = Derivative { of: op.clone(), wanted: 0, given };
    (0..n).map(|i| (rule.given.contains(&i) && s.wants(i)).then(|| rule.sym(i, &inputs, s.gy(0)))).collect()
}

impl<C: ByKernel> Compute for Derivative<C> {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(x.get(self.place()).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = self.given.len();
        let inputs: SmallVec<[Memory<'_>; 6]> = (0..n).map(|i| run.x_memory(i)).collect();
        let (gy, mut gx) =
            ([run.x_memory(n)], SmallVec::<[Option<(Memory<'_>, bool)>; 6]>::from_elem(None, n));
        gx[self.place()] = Some((run.y_memory(0), false));
        self.of.backward(&mut run.backward(&inputs, &gy, &gx, self.mask()))
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let n = self.given.len();
        let mut inputs: SmallVec<[Sym; 6]> = (0..n).map(|i| s.x(i)).collect();
        let gy = s.x(n);
        let wanted: SmallVec<[bool; 6]> = (0..n).map(|i| i == self.place()).collect();
        let own = || Symbols { present: self.mask(), ..Symbols::new(&inputs, &[], &[gy], &wanted) };
        let (formula, tape) = Tape::of(|| self.of.formula(&own()));
        if let Some(formula) = formula {
            let all: SmallVec<[Sym; 8]> = inputs.iter().copied().chain([gy]).collect();
            return tape.gradients(&[(formula, s.gy(0))], &all);
        }
        if !self.of.is_linear(self.wanted) {
            let none = Sym::apply(NoDerivative(C::SPEC.name), &[s.gy(0)]);
            return vec![Some(none); n + 1];
        }
        // The output is linear in the input. So the inner product of this derivative with `g` equals the inner product
        // of `gy` with the output for the input `g`.
        let own = self.place();
        inputs[own] = s.gy(0);
        let mut found: Vec<Option<Sym>> =
            (0..n).map(|i| (i != own && s.wants(i)).then(|| self.sym(self.given[i], &inputs, gy))).collect();
        let output = || Sym::apply_op(Op::with_inputs(self.of.clone(), self.mask()), &inputs)[0];
        found.push(s.wants(n).then(output));
        found
    }
}
