//! Solvers that scale each element's step by a running average of its gradient's size.

use super::{Rule, Step, average};
use crate::kernels::Number;
use crate::ops::contract::spec::op;

op! {
    /// Adadelta, steps in units of the values themselves: `e <- decay e + (1 - decay) g^2; d = g sqrt((f + eps) / (e +
    /// eps)); f <- decay f + (1 - decay) d^2; w <- w - lr d`.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     decay: Decay of the means of squares.
    ///     eps: Keeps the quotient finite and the first steps from being zero.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Zeiler, ADADELTA: an adaptive learning rate method, 2012.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Adadelta(eps=0.01)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.667, 2.408])
    /// ```
    Adadelta = Adadelta(; lr: f64 = 1.0, decay: f64 = 0.95, eps: f64 = 1e-6)
}

impl Rule<2> for Adadelta {
    const STATES: [&'static str; 2] = ["e_sqr_grad", "e_sqr_delta"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> N {
        let (rate, eps, mean) = (N::all(step.rate), N::all(self.eps), average(self.decay));
        move |g, w, [e_grad, e_delta]| {
            *e_grad = mean(*e_grad, g * g);
            let delta = g * ((*e_delta + eps) / (*e_grad + eps)).sqrt();
            *e_delta = mean(*e_delta, delta * delta);
            w - rate * delta
        }
    }
}

op! {
    /// Adagrad, steps that shrink with all gradients so far: `v <- v + g^2; w <- w - lr g / (sqrt(v) + eps)`.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     eps: Keeps the quotient finite.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, 2011.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Adagrad(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.9, 2.1])
    /// ```
    Adagrad = Adagrad(; lr: f64 = 1e-2, eps: f64 = 1e-8)
}

impl Rule<1> for Adagrad {
    const STATES: [&'static str; 1] = ["v"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let (rate, eps) = (N::all(step.rate), N::all(self.eps));
        move |g, w, [v]| {
            *v = *v + g * g;
            w - rate * g / (v.sqrt() + eps)
        }
    }
}

op! {
    /// RMSprop, steps scaled by the size of recent gradients:
    /// `v <- decay v + (1 - decay) g^2; w <- w - lr g / (sqrt(v) + eps)`.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     decay: Decay of the mean of squares.
    ///     eps: Keeps the quotient finite.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Hinton, Neural networks for machine learning, lecture 6a, 2012.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.RMSprop(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.684, 2.316])
    /// ```
    RMSprop = RMSprop(; lr: f64 = 1e-3, decay: f64 = 0.9, eps: f64 = 1e-8)
}

impl Rule<1> for RMSprop {
    const STATES: [&'static str; 1] = ["v"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let (rate, eps, mean) = (N::all(step.rate), N::all(self.eps), average(self.decay));
        move |g, w, [v]| {
            *v = mean(*v, g * g);
            w - rate * g / (v.sqrt() + eps)
        }
    }
}

op! {
    /// RMSprop by the variance of the gradients, with momentum: `n <- decay n + (1 - decay) g^2; a <- decay a + (1 -
    /// decay) g; d <- momentum d - lr g / sqrt(n - a^2 + eps); w <- w + d`.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     decay: Decay of the means.
    ///     momentum: Weight of the last step.
    ///     eps: Keeps the quotient finite.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Graves, Generating sequences with recurrent neural networks, 2013.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.RMSpropGraves(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.543, 2.458])
    /// ```
    RMSpropGraves = RMSpropGraves(; lr: f64 = 1e-4, decay: f64 = 0.95, momentum: f64 = 0.9, eps: f64 = 1e-4)
}

impl Rule<3> for RMSpropGraves {
    const STATES: [&'static str; 3] = ["n", "g", "d"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 3]) -> N {
        let (rate, keep, eps, zero) =
            (N::all(step.rate), N::all(self.momentum), N::all(self.eps), N::all(0.0));
        let mean = average(self.decay);
        move |g, w, [n, a, d]| {
            *n = mean(*n, g * g);
            *a = mean(*a, g);
            // If the gradient hardly changes, rounding may make the variance negative.
            let variance = (*n - *a * *a).max(zero);
            *d = keep * *d - rate * g / (variance + eps).sqrt();
            w + *d
        }
    }
}
