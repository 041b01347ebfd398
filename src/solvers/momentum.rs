//! Solvers that step along the gradient, or along a running average of it.

use super::{Rule, Step, average};
use crate::kernels::Number;
use crate::ops::contract::spec::op;

op! {
    /// Stochastic gradient descent: `w <- w - lr g`.
    ///
    /// Args:
    ///     lr: Learning rate.
    /// Returns:
    ///     The solver.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Sgd(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.95, 2.1 ])
    /// ```
    Sgd = Sgd(; lr: f64 = 1e-3)
}

impl Rule<0> for Sgd {
    const STATES: [&'static str; 0] = [];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 0]) -> N {
        let rate = N::all(step.rate);
        move |g, w, []| w - rate * g
    }
}

op! {
    /// Momentum: `m <- momentum m + lr g; w <- w - m`.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     momentum: Weight of the last step.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Qian, On the momentum term in gradient descent learning algorithms, 1999.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Momentum(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.95, 2.1 ])
    /// ```
    Momentum = Momentum(; lr: f64 = 1e-3, momentum: f64 = 0.9)
}

impl Rule<1> for Momentum {
    const STATES: [&'static str; 1] = ["m"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let (rate, keep) = (N::all(step.rate), N::all(self.momentum));
        move |g, w, [m]| {
            *m = keep * *m + rate * g;
            w - *m
        }
    }
}

op! {
    /// Momentum with decoupled weight decay: `m <- momentum m + lr g; w <- w - m - (lr / lr_0) wd w`.
    ///
    /// `lr_0` is the learning rate that the solver was made with, so that decay follows its schedule. A rate given to
    /// `weight_decay` replaces `wd` in the next update.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     momentum: Weight of the last step.
    ///     wd: Rate of weight decay.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.SgdW(lr=0.1, wd=0.01)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.94, 2.08])
    /// ```
    SgdW = SgdW(; lr: f64 = 1e-3, momentum: f64 = 0.9, wd: f64 = 1e-4)
}

impl Rule<1> for SgdW {
    const STATES: [&'static str; 1] = ["m"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let (rate, keep) = (N::all(step.rate), N::all(self.momentum));
        let decay = N::all(step.schedule * step.decay);
        move |g, w, [m]| {
            *m = keep * *m + rate * g;
            w - *m - decay * w
        }
    }
    fn decay(&self) -> Option<f64> {
        Some(self.wd)
    }
}

op! {
    /// Nesterov's accelerated gradient: `m' <- momentum m - lr g; w <- w - momentum m + (1 + momentum) m'`.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     momentum: Weight of the last step.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Nesterov, A method for solving the convex programming problem with convergence rate O(1/k^2), 1983.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Nesterov(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.905, 2.19 ])
    /// ```
    Nesterov = Nesterov(; lr: f64 = 1e-3, momentum: f64 = 0.9)
}

impl Rule<1> for Nesterov {
    const STATES: [&'static str; 1] = ["m"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let (rate, keep) = (N::all(step.rate), N::all(self.momentum));
        let ahead = N::all(1.0 + self.momentum);
        move |g, w, [m]| {
            let last = *m;
            *m = keep * last - rate * g;
            w - keep * last + ahead * *m
        }
    }
}

op! {
    /// LARS, momentum with a learning rate for each parameter, in proportion to the norm of its values over the norm of
    /// its gradient: `v <- momentum v + r (g + wd w); w <- w - v` with `r = lr coefficient |w| / (|g| + wd |w|)`.
    ///
    /// For large batches. `wd` is the rate last given to `weight_decay`, 0 otherwise. A parameter has `r = lr` if its
    /// norm is below `eps`, or if its gradient and decay are both zero.
    ///
    /// Args:
    ///     lr: Learning rate.
    ///     momentum: Weight of the last step.
    ///     coefficient: Trust in the learning rate of a parameter.
    ///     eps: Norm of the values below which `r = lr`.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     You et al., Large batch training of convolutional networks, 2017.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Lars(lr=0.1, coefficient=0.5)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.95, 2.1 ])
    /// ```
    Lars = Lars(; lr: f64 = 1e-3, momentum: f64 = 0.9, coefficient: f64 = 0.001, eps: f64 = 1e-6)
}

impl Rule<1> for Lars {
    const STATES: [&'static str; 1] = ["v"];
    const NORMS: bool = true;
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let [g_norm, w_norm] = step.norms;
        let length = g_norm + step.decay * w_norm;
        let local = if w_norm < self.eps || length == 0.0 { 1.0 } else { self.coefficient * w_norm / length };
        // A huge gradient has a tiny rate, which float32 cannot hold: the gradient takes a power of two of it.
        let shift =
            if (step.rate * local).abs() < f64::from(f32::MIN_POSITIVE) { 2.0_f64.powi(64) } else { 1.0 };
        let (rate, keep) = (N::all(step.rate * local * shift), N::all(self.momentum));
        let (decay, part) = (N::all(step.decay), N::all(1.0 / shift));
        move |g, w, [v]| {
            *v = keep * *v + rate * ((g + decay * w) * part);
            w - *v
        }
    }
    fn decay(&self) -> Option<f64> {
        Some(0.0)
    }
}

op! {
    /// Lion, steps along the sign of a mean of the gradients: `w <- w - lr (sign(beta1 m + (1 - beta1) g) + wd w)`,
    /// `m <- beta2 m + (1 - beta2) g`.
    ///
    /// `wd` is the rate last given to `weight_decay`, 0 otherwise.
    ///
    /// Args:
    ///     lr: Learning rate, usually 3 to 10 times smaller than for Adam.
    ///     beta1: Weight of the mean against the gradient in a step.
    ///     beta2: Decay of the mean.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Chen et al., Symbolic discovery of optimization algorithms, 2023.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Lion(lr=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.9, 2.1])
    /// ```
    Lion = Lion(; lr: f64 = 1e-4, beta1: f64 = 0.9, beta2: f64 = 0.99)
}

impl Rule<1> for Lion {
    const STATES: [&'static str; 1] = ["m"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 1]) -> N {
        let (rate, decay, zero, one) = (N::all(step.rate), N::all(step.decay), N::all(0.0), N::all(1.0));
        let (blend, mean) = (average(self.beta1), average(self.beta2));
        move |g, w, [m]| {
            let u: N = blend(*m, g);
            let sign = N::select(u.gt(zero), one, N::select(u.lt(zero), -one, u));
            *m = mean(*m, g);
            w - rate * (sign + decay * w)
        }
    }
    fn decay(&self) -> Option<f64> {
        Some(0.0)
    }
}
