//! Adam and its kin: steps along a mean of the gradients, scaled by a mean of their squares.

use super::{Rule, Step, average};
use crate::kernels::Number;
use crate::ops::contract::spec::op;

/// The learning rate with the correction for both averages starting at zero.
fn corrected(step: &Step, beta1: f64, beta2: f64) -> f64 {
    step.rate * step.progress(beta2).sqrt() / step.progress(beta1)
}

op! {
    /// Adam: `m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; w <- w - alpha_t m / (sqrt(v) + eps)` with
    /// `alpha_t = alpha sqrt(1 - beta2^t) / (1 - beta1^t)`.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of their squares.
    ///     eps: Keeps the quotient finite.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Kingma and Ba, Adam: a method for stochastic optimization, 2015.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Adam(alpha=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.9, 2.1])
    /// ```
    Adam = Adam(; alpha: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8)
}

impl Rule<2> for Adam {
    const STATES: [&'static str; 2] = ["mean", "var"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> N {
        let (rate, eps) = (N::all(corrected(step, self.beta1, self.beta2)), N::all(self.eps));
        let (mean, square) = (average(self.beta1), average(self.beta2));
        move |g, w, [m, v]| {
            *m = mean(*m, g);
            *v = square(*v, g * g);
            w - rate * *m / (v.sqrt() + eps)
        }
    }
}

op! {
    /// Adam with decoupled weight decay: Adam's step, minus `(alpha / alpha_0) wd w`.
    ///
    /// `alpha_0` is the initial learning rate, so decay follows the schedule. A rate given to `weight_decay` replaces
    /// `wd` in the next update.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of their squares.
    ///     eps: Keeps the quotient finite.
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
    ///     >>> solver = S.AdamW(alpha=0.1, wd=0.01)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.89, 2.08])
    /// ```
    AdamW = AdamW(; alpha: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8, wd: f64 = 1e-4)
}

impl Rule<2> for AdamW {
    const STATES: [&'static str; 2] = ["mean", "var"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> N {
        let (rate, eps) = (N::all(corrected(step, self.beta1, self.beta2)), N::all(self.eps));
        let (mean, square) = (average(self.beta1), average(self.beta2));
        let decay = N::all(step.schedule * step.decay);
        move |g, w, [m, v]| {
            *m = mean(*m, g);
            *v = square(*v, g * g);
            w - rate * *m / (v.sqrt() + eps) - decay * w
        }
    }
    fn decay(&self) -> Option<f64> {
        Some(self.wd)
    }
}

op! {
    /// AdaBelief, Adam scaled by the deviation of gradients from their mean: `m <- beta1 m + (1 - beta1) g; s <- beta2
    /// s + (1 - beta2) (g - m)^2 + eps; w <- w - alpha / (1 - beta1^t) m / (sqrt(s / (1 - beta2^t)) + eps)`.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of squared differences.
    ///     eps: Keeps the quotient finite.
    ///     wd: Rate of weight decay; only read with `weight_decouple`.
    ///     amsgrad: Divide by `s_max <- max(s_max, s) + eps` instead; then `eps` is not added to `s`.
    ///     weight_decouple: Decay weights separately from the gradient, by `alpha wd w` in each update.
    ///     fixed_decay: With `weight_decouple`, decay by `wd w` instead, independent of the learning rate.
    ///     rectify: Scale early steps by the variance of `s` (rectified Adam), and ignore `s` while it is too inexact.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Zhuang et al., AdaBelief optimizer: adapting stepsizes by the belief in observed gradients, 2020.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.AdaBelief(alpha=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.889, 2.111])
    /// ```
    AdaBelief = AdaBelief(;
        alpha: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8, wd: f64 = 0.0,
        amsgrad: bool = false, weight_decouple: bool = false, fixed_decay: bool = false, rectify: bool = false,
    )
}

impl AdaBelief {
    /// The rectification factor, or `None` while the variance is not known well enough.
    fn rectified(&self, step: &Step) -> Option<f64> {
        let last = 2.0 / (1.0 - self.beta2) - 1.0;
        let now = last - 2.0 * step.t * (1.0 - step.progress(self.beta2)) / step.progress(self.beta2);
        (now > 4.0).then(|| ((now - 4.0) * (now - 2.0) * last / ((last - 4.0) * (last - 2.0) * now)).sqrt())
    }
}

impl Rule<3> for AdaBelief {
    const STATES: [&'static str; 3] = ["mean", "var", "s_max"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 3]) -> N {
        let (amsgrad, rectified) =
            (self.amsgrad, if self.rectify { self.rectified(step) } else { Some(1.0) });
        let rate = rectified.map_or(step.rate, |r| r * corrected(step, self.beta1, self.beta2));
        let decay = if self.fixed_decay { step.decay } else { step.rate * step.decay };
        let (rate, decay, eps) = (N::all(rate), N::all(decay), N::all(self.eps));
        let floor = N::all(self.eps * step.progress(self.beta2).sqrt());
        let (mean, square) = (average(self.beta1), average(self.beta2));
        move |g, w, [m, s, s_max]| {
            *m = mean(*m, g);
            *s = square(*s, (g - *m) * (g - *m));
            if amsgrad {
                *s_max = s_max.max(*s);
            }
            let scale = if amsgrad { s_max } else { s };
            *scale = *scale + eps;
            let w = w - decay * w;
            match rectified {
                Some(_) => w - rate * *m / (scale.sqrt() + floor),
                None => w - rate * *m,
            }
        }
    }
    fn n_states(&self) -> usize {
        if self.amsgrad { 3 } else { 2 }
    }
    fn decay(&self) -> Option<f64> {
        self.weight_decouple.then_some(self.wd)
    }
}

/// The bounds of the learning rates at step `t`. Both approach the rate of plain gradient descent.
fn bounds(step: &Step, final_lr: f64, gamma: f64) -> (f64, f64) {
    let (last, at) = (final_lr * step.schedule, (gamma * step.t).max(f64::MIN_POSITIVE));
    (last * (1.0 - 1.0 / (at + 1.0)), (last * (1.0 + 1.0 / at)).min(f64::MAX))
}

op! {
    /// AdaBound, Adam with the learning rate of each element clipped to bounds that approach plain gradient descent:
    /// `w <- w - clip(alpha_t / (sqrt(v) + eps), lower_t, upper_t) m`.
    ///
    /// With `f = final_lr alpha / alpha_0`, `alpha_0` being the learning rate that the solver was made with,
    /// `lower_t = f (1 - 1 / (gamma t + 1))` and `upper_t = f (1 + 1 / (gamma t))`; `m`, `v` and `alpha_t` as in Adam.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of their squares.
    ///     eps: Keeps the quotient finite.
    ///     final_lr: Final learning rate.
    ///     gamma: Rate at which the bounds approach each other.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Luo et al., Adaptive gradient methods with dynamic bound of learning rate, 2019.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.AdaBound(alpha=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.9, 2.1])
    /// ```
    AdaBound = AdaBound(;
        alpha: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8, final_lr: f64 = 0.1,
        gamma: f64 = 0.001,
    )
}

impl Rule<2> for AdaBound {
    const STATES: [&'static str; 2] = ["mean", "var"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> N {
        let (rate, eps) = (N::all(corrected(step, self.beta1, self.beta2)), N::all(self.eps));
        let (mean, square) = (average(self.beta1), average(self.beta2));
        let (lower, upper) = bounds(step, self.final_lr, self.gamma);
        let (lower, upper) = (N::all(lower), N::all(upper));
        move |g, w, [m, v]| {
            *m = mean(*m, g);
            *v = square(*v, g * g);
            w - (rate / (v.sqrt() + eps)).max(lower).min(upper) * *m
        }
    }
}

op! {
    /// Adamax, Adam scaled by the largest recent gradient:
    /// `m <- beta1 m + (1 - beta1) g; u <- max(beta2 u, |g|); w <- w - alpha / (1 - beta1^t) m / (u + eps)`.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the largest gradient.
    ///     eps: Keeps the quotient finite.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Kingma and Ba, Adam: a method for stochastic optimization, 2015.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Adamax(alpha=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.9, 2.1])
    /// ```
    Adamax = Adamax(; alpha: f64 = 2e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8)
}

impl Rule<2> for Adamax {
    const STATES: [&'static str; 2] = ["m", "u"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> N {
        let rate = N::all(step.rate / step.progress(self.beta1));
        let (eps, keep, mean) = (N::all(self.eps), N::all(self.beta2), average(self.beta1));
        move |g, w, [m, u]| {
            *m = mean(*m, g);
            *u = (keep * *u).max(g.abs());
            w - rate * *m / (*u + eps)
        }
    }
}

op! {
    /// AMSGRAD, Adam scaled by the largest mean of squares so far: `w <- w - alpha m / (sqrt(v_hat) + eps)` with
    /// `v_hat <- max(v_hat, v)`, `m` and `v` as in Adam.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of their squares.
    ///     eps: Keeps the quotient finite.
    ///     bias_correction: Use Adam's `alpha_t` instead of `alpha`.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Reddi, Kale and Kumar, On the convergence of Adam and beyond, 2018.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.AMSGRAD(alpha=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.684, 2.316])
    /// ```
    AMSGRAD = AMSGRAD(;
        alpha: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8, bias_correction: bool = false,
    )
}

impl Rule<3> for AMSGRAD {
    const STATES: [&'static str; 3] = ["m", "v", "v_hat"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 3]) -> N {
        let rate = if self.bias_correction { corrected(step, self.beta1, self.beta2) } else { step.rate };
        let (rate, eps) = (N::all(rate), N::all(self.eps));
        let (mean, square) = (average(self.beta1), average(self.beta2));
        move |g, w, [m, v, v_hat]| {
            *m = mean(*m, g);
            *v = square(*v, g * g);
            *v_hat = v_hat.max(*v);
            w - rate * *m / (v_hat.sqrt() + eps)
        }
    }
}

op! {
    /// AMSBound, AMSGRAD with the bounds of AdaBound: `w <- w - clip(alpha / (sqrt(v_hat) + eps), lower_t, upper_t) m`.
    ///
    /// Args:
    ///     alpha: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of their squares.
    ///     eps: Keeps the quotient finite.
    ///     final_lr: Final learning rate.
    ///     gamma: Rate at which the bounds approach each other.
    ///     bias_correction: Use Adam's `alpha_t` instead of `alpha`.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     Luo et al., Adaptive gradient methods with dynamic bound of learning rate, 2019.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.AMSBound(alpha=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.684, 2.316])
    /// ```
    AMSBound = AMSBound(;
        alpha: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, eps: f64 = 1e-8, final_lr: f64 = 0.1,
        gamma: f64 = 0.001, bias_correction: bool = false,
    )
}

impl Rule<3> for AMSBound {
    const STATES: [&'static str; 3] = ["m", "v", "v_hat"];
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 3]) -> N {
        let rate = if self.bias_correction { corrected(step, self.beta1, self.beta2) } else { step.rate };
        let (rate, eps) = (N::all(rate), N::all(self.eps));
        let (mean, square) = (average(self.beta1), average(self.beta2));
        let (lower, upper) = bounds(step, self.final_lr, self.gamma);
        let (lower, upper) = (N::all(lower), N::all(upper));
        move |g, w, [m, v, v_hat]| {
            *m = mean(*m, g);
            *v = square(*v, g * g);
            *v_hat = v_hat.max(*v);
            w - (rate / (v_hat.sqrt() + eps)).max(lower).min(upper) * *m
        }
    }
}

op! {
    /// LAMB, Adam's direction with a step length in proportion to the norm of each parameter:
    /// `w <- w - eta clip(|w|, gamma_l, gamma_u) / |r| r` with `r = m / (sqrt(v) + eps) + wd w`.
    ///
    /// For large batches. `wd` is the rate last given to `weight_decay`, 0 otherwise. Where `|r|` is at most `eps`, the
    /// step is `eta r`.
    ///
    /// Args:
    ///     eta: Learning rate.
    ///     beta1: Decay of the mean of gradients.
    ///     beta2: Decay of the mean of their squares.
    ///     gamma_l: Lower bound of the norm of values.
    ///     gamma_u: Upper bound of the norm of values.
    ///     eps: Keeps the quotient finite.
    ///     bias_correction: Divide the means by `1 - beta^t`, because they start at zero.
    /// Returns:
    ///     The solver.
    /// Source:
    ///     You et al., Large batch optimization for deep learning: training BERT in 76 minutes, 2020.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.solvers as S
    ///     >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> w.g = [0.5, -1.0]
    ///     >>> solver = S.Lamb(eta=0.1)
    ///     >>> solver.set_parameters({"w": w})
    ///     >>> solver.update()
    ///     >>> w.d.round(3)
    ///     array([0.842, 2.158])
    /// ```
    Lamb = Lamb(;
        eta: f64 = 1e-3, beta1: f64 = 0.9, beta2: f64 = 0.999, gamma_l: f64 = 0.0, gamma_u: f64 = 10.0,
        eps: f64 = 1e-6, bias_correction: bool = false,
    )
}

impl Lamb {
    /// The direction of a step, from the value and the averages.
    fn direction<N: Number>(&self, step: &Step) -> impl Fn(N, N, N) -> N {
        let correction = |beta| N::all(if self.bias_correction { 1.0 / step.progress(beta) } else { 1.0 });
        let (m_scale, v_scale) = (correction(self.beta1), correction(self.beta2));
        let (eps, decay) = (N::all(self.eps), N::all(step.decay));
        move |w, m, v| m_scale * m / ((v_scale * v).sqrt() + eps) + decay * w
    }
}

impl Rule<2> for Lamb {
    const STATES: [&'static str; 2] = ["mean", "var"];
    const NORMS: bool = true;
    fn measured<N: Number, const AGAIN: bool>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> [N; 2] {
        let (mean, square) = (average(self.beta1), average(self.beta2));
        let direction = self.direction(step);
        move |g, w, [m, v]| {
            if !AGAIN {
                *m = mean(*m, g);
                *v = square(*v, g * g);
            }
            [direction(w, *m, *v), w]
        }
    }
    fn formula<N: Number>(&self, step: &Step) -> impl Fn(N, N, &mut [N; 2]) -> N {
        let [length, w_norm] = step.norms;
        let trust = if length > self.eps { w_norm.max(self.gamma_l).min(self.gamma_u) / length } else { 1.0 };
        let (rate, direction) = (N::all(step.rate * trust), self.direction(step));
        move |_, w, [m, v]| w - rate * direction(w, *m, *v)
    }
    fn decay(&self) -> Option<f64> {
        Some(0.0)
    }
}
