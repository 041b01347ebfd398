//! The activation at the end of a fused function.

use crate::kernels::{Activation, Float};
use crate::ops::contract::elementwise::Map;
use crate::ops::pointwise::activation::{Sigmoid, Tanh};
use crate::ops::pointwise::rectifier::{ELU, LeakyReLU, ReLU, ReLU6};
use crate::ops::{Backward, Compute, Reads, Run, Sym};
use crate::{Error, Result};

/// An activation with its arguments.
#[derive(Clone)]
pub(super) enum FusedActivation {
    Identity,
    ReLU(Map<ReLU>),
    Sigmoid(Map<Sigmoid>),
    Tanh(Map<Tanh>),
    LeakyReLU(Map<LeakyReLU>),
    ELU(Map<ELU>),
    ReLU6(Map<ReLU6>),
}

/// The names, in the order of error messages.
const NAMES: &str = "identity, relu, sigmoid, tanh, leaky_relu, elu, relu6";

/// Evaluates an expression with the operation of the activation, or another one if there is no activation.
macro_rules! of_operation {
    ($self:expr, $none:expr, $op:ident => $some:expr) => {
        match $self {
            FusedActivation::Identity => $none,
            FusedActivation::ReLU($op) => $some,
            FusedActivation::Sigmoid($op) => $some,
            FusedActivation::Tanh($op) => $some,
            FusedActivation::LeakyReLU($op) => $some,
            FusedActivation::ELU($op) => $some,
            FusedActivation::ReLU6($op) => $some,
        }
    };
}

/// The arrays that the gradient of an activation reads.
fn reads<C: Compute>(op: &C) -> Reads {
    op.reads(0)
}

/// Applies the operation symbolically.
fn sym<C: Compute>(op: &C, x: Sym) -> Sym {
    Sym::apply(op.clone(), &[x])
}

impl FusedActivation {
    /// The activation called `name`, for messages of function `op`.
    ///
    /// # Errors
    /// If there is no activation of this name, or it takes another number of arguments.
    pub(super) fn new(op: &'static str, name: &str, args: &[f64]) -> Result<Self> {
        let takes = usize::from(matches!(name, "leaky_relu" | "elu"));
        if args.len() != takes && NAMES.split(", ").any(|each| each == name) {
            let expected = format!("{takes} long for {name}");
            return Err(Error::argument(op, "nonlinearity_args", expected, format!("{args:?}")));
        }
        let alpha = args.first().copied().unwrap_or_default();
        Ok(match name {
            "identity" => Self::Identity,
            "relu" => Self::ReLU(Map(ReLU { inplace: false })),
            "sigmoid" => Self::Sigmoid(Map(Sigmoid {})),
            "tanh" => Self::Tanh(Map(Tanh {})),
            "leaky_relu" => Self::LeakyReLU(Map(LeakyReLU { alpha, inplace: false })),
            "elu" => Self::ELU(Map(ELU { alpha })),
            "relu6" => Self::ReLU6(Map(ReLU6 {})),
            _ => {
                let expected = format!("one of {NAMES}");
                return Err(Error::argument(op, "nonlinearity", expected, format!("{name:?}")));
            }
        })
    }

    /// The activation as an epilogue of another kernel, or the identity if it cannot be one.
    pub(super) fn as_epilogue(&self) -> Activation {
        if let Self::ReLU(_) = self { Activation::Relu } else { Activation::Identity }
    }

    /// True if it is not the identity.
    pub(super) fn is_present(&self) -> bool {
        !matches!(self, Self::Identity)
    }

    /// True if it needs a pass of its own, after the other kernels.
    pub(super) fn is_separate_pass(&self) -> bool {
        !matches!(self, Self::Identity | Self::ReLU(_))
    }

    /// The values that its gradient reads. `inputs` means the value before the activation, which only this function
    /// has.
    pub(super) fn reads(&self) -> Reads {
        of_operation!(self, Reads::NOTHING, op => reads(op))
    }

    /// Computes the output of the activation.
    pub(super) fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        of_operation!(self, Ok(()), op => op.forward(run))
    }

    /// Computes the gradient of the activation.
    pub(super) fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        of_operation!(self, Ok(()), op => op.backward(run))
    }

    /// Applies the activation to a symbol.
    pub(super) fn on(&self, x: Sym) -> Sym {
        of_operation!(self, x, op => sym(op, x))
    }
}
