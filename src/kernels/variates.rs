//! Random numbers of distributions that take an unknown number of draws, which come from `next`: numbers between 0
//! and 1, both excluded.

/// A gamma number of scale 1 (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
pub(super) fn gamma(k: f64, next: &mut dyn FnMut() -> f64) -> f64 {
    if k < 1.0 {
        let root = next().powf(1.0 / k);
        return root * gamma(k + 1.0, next);
    }
    let d = k - 1.0 / 3.0;
    loop {
        let x = (-2.0 * next().ln()).sqrt() * (std::f64::consts::TAU * next()).cos();
        let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
        if v > 0.0 && next().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// A binomial number by the distances from one event to the next.
pub(super) fn few(n: u64, p: f64, next: &mut dyn FnMut() -> f64) -> f64 {
    let scale = (-p).ln_1p();
    if scale == 0.0 {
        return 0.0;
    }
    let (mut count, mut at) = (0.0, 0.0);
    loop {
        at += (next().ln() / scale).ceil();
        if at > n as f64 {
            return count;
        }
        count += 1.0;
    }
}

/// A binomial number by transformed rejection (Hormann, "The generation of binomial random variates", 1993).
pub(super) fn many(n: f64, p: f64, next: &mut dyn FnMut() -> f64) -> f64 {
    // The difference between the logarithm of a factorial and Stirling's formula.
    let tail =
        |k: f64| libm::lgamma(k + 1.0) - ((k + 0.5) * (k + 1.0).ln() - (k + 1.0) + 0.918_938_533_204_672_8);
    let spread = (n * p * (1.0 - p)).sqrt();
    let b = 1.15 + 2.53 * spread;
    let a = -0.0873 + 0.0248 * b + 0.01 * p;
    let (centre, odds) = (n * p + 0.5, p / (1.0 - p));
    let (alpha, sure) = ((2.83 + 5.1 / b) * spread, 0.92 - 4.2 / b);
    let mode = ((n + 1.0) * p).floor();
    loop {
        let (u, v) = (next() - 0.5, next());
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + centre).floor();
        if us >= 0.07 && v <= sure {
            return k;
        }
        if k < 0.0 || k > n {
            continue;
        }
        let bound = (mode + 0.5) * ((mode + 1.0) / (odds * (n - mode + 1.0))).ln()
            + (n + 1.0) * ((n - mode + 1.0) / (n - k + 1.0)).ln()
            + (k + 0.5) * (odds * (n - k + 1.0) / (k + 1.0)).ln()
            + tail(mode)
            + tail(n - mode)
            - tail(k)
            - tail(n - k);
        if (v * alpha / (a / (us * us) + b)).ln() <= bound {
            return k;
        }
    }
}
