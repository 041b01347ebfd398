//! Tests of formulas: explicit derivatives match the function, and are finite wherever that is.

use super::Unary;
use crate::kernels::{Dual, Float};
use crate::ops::{
    arrangement::array::Identity, pointwise::activation::*, pointwise::arithmetic::*,
    pointwise::comparison::*, pointwise::logical::*, pointwise::math::*, pointwise::powers::*,
    pointwise::selection::*,
};
use crate::ops::{pointwise::rectifier::*, pointwise::trigonometry::*};

/// Value, first and second derivative. The latter by dual numbers through the kernel's formula.
fn jet<T: Float>(op: &impl Unary, x: T) -> [f64; 3] {
    let (y, moving) = (op.f(x), Dual::variable(x));
    [y.real(), op.gx(T::ONE, x, y).real(), op.gx(Dual::constant(T::ONE), moving, op.f(moving)).d.real()]
}

/// Asserts that derivatives are finite wherever the function is finite and not vertical, including far out and at the
/// kinks.
#[track_caller]
fn has_derivatives(op: &impl Unary, kinks: &[f64]) {
    for &x in [0.0, 1e4, -1e4].iter().chain(kinks) {
        for [y, first, second] in [jet(op, x as f32), jet(op, x)] {
            let fine = !y.is_finite() || first.is_infinite() || !(first.is_nan() || second.is_nan());
            assert!(fine, "at {x}: f = {y}, f' = {first}, f'' = {second}");
        }
    }
}

/// Asserts that the explicit derivative matches the function.
#[track_caller]
fn is_derived(op: &impl Unary) {
    for x in [-1e4_f64, -30.0, -3.7, -0.3, 0.2, 0.9, 4.1, 30.0, 1e4] {
        let (written, derived): (f64, f64) = (op.gx(1.0, x, op.f(x)), op.f(Dual::variable(x)).d);
        let same = (written - derived).abs() <= 1e-9 * (1.0 + derived.abs());
        assert!(same || written == derived || derived.is_nan(), "at {x}: {written} is not {derived}");
    }
}

/// Tests each of these operations, with the inputs, if any, where its derivative jumps or is hard to compute.
macro_rules! each {
    ($($op:expr $(, $kink:expr)*;)+) => {$(
        has_derivatives(&$op, &[$($kink),*]);
        is_derived(&$op);
    )+};
}

#[test]
fn derivatives_are_numbers_far_out_and_at_kinks() {
    let inplace = false;
    each! {
        Sigmoid {}; Tanh {}; Swish {}; GELU {}; Mish {}; LogSigmoid {}; SoftSign {}; TanhShrink {};
        Sinc {}, 1.0, -1.0, 1e-5;
        SoftPlus { beta: 1.0 }; SoftPlus { beta: 20.0 };
        ReLU { inplace }; LeakyReLU { alpha: 0.1, inplace }; LeakyReLU { alpha: -0.1, inplace };
        ELU { alpha: 1.5 }; SELU { scale: 1.05, alpha: 1.67 };
        ReLU6 {}, 6.0;
        HardSigmoid {}, -2.5, 2.5;
        HardTanh {}, -1.0, 1.0;
        HardSwish {}, -3.0, 3.0;
    }
    each! {
        Identity {}; Abs {}; Exp {}; Log {}; Sin {}; Cos {}; Tan {};
        ASin {}, 1.0, -1.0;
        ACos {}, 1.0, -1.0;
        ATan {}; Sinh {}; Cosh {}; ASinh {};
        ACosh {}, 1.0;
        ATanh {}; Erf {}; IsNaN {}; IsInf {};
        ResetNaN { val: 0.0 }, f64::NAN;
        ResetInf { val: 0.0 }, f64::INFINITY;
    }
    // Gradients pass straight through these.
    has_derivatives(&Sign { alpha: 1.0 }, &[]);
    has_derivatives(&Floor {}, &[]);
    has_derivatives(&Ceil {}, &[]);
    has_derivatives(&Round {}, &[]);
    each! {
        AddScalar { val: 2.0, inplace }; MulScalar { val: 2.0, inplace };
        PowScalar { val: 2.0, inplace }; PowScalar { val: 0.5, inplace }; PowScalar { val: -1.0, inplace };
        RSubScalar { val: 2.0 }; RDivScalar { val: 2.0 }; RPowScalar { val: 2.0 };
        EqualScalar { val: 1.0 }; NotEqualScalar { val: 1.0 }; GreaterScalar { val: 1.0 };
        GreaterEqualScalar { val: 1.0 }; LessScalar { val: 1.0 }; LessEqualScalar { val: 1.0 };
        LogicalAndScalar { val: true }; LogicalOrScalar { val: true }; LogicalXorScalar { val: true };
        LogicalNot {};
        MaximumScalar { val: 1.0 }, 1.0;
        MinimumScalar { val: 1.0 }, 1.0;
    }
}
