//! The words are the published ones; numbers have the distributions that they are named after.

use super::*;

/// The vectors that come with Random123, the authors' own implementation.
#[test]
fn philox_gives_the_published_words() {
    let all = |c: [u32; 4]| philox(c.map(|w| [w; LANES]), 0).map(|w| w[3]);
    assert_eq!(all([0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let ones = philox([[u32::MAX; LANES]; 4], u64::MAX).map(|w| w[0]);
    assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344_u32].map(|w| [w; LANES]);
    let words = philox(pi, 0x299f_31d0_a409_3822).map(|w| w[7]);
    assert_eq!(words, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

const KEY: PhiloxKey = PhiloxKey { seed: 42, offset: 128 };
const N: usize = 200_000;

/// Mean and variance.
fn moments(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64)
}

/// Sum of squared deviations of counts from what is expected, each divided by that.
fn chi_square(counts: &[f64], expected: &[f64]) -> f64 {
    counts.iter().zip(expected).map(|(n, e)| (n - e).powi(2) / e).sum()
}

#[test]
fn any_part_of_a_sequence_can_be_drawn() {
    let mut whole = vec![0.0_f64; 300];
    KEY.uniform(0.0, 1.0, &mut whole);
    let mut part = vec![0.0_f64; 100];
    PhiloxKey { offset: KEY.offset + 128, ..KEY }.uniform(0.0, 1.0, &mut part);
    assert_eq!(whole[128..228], part);
    let mut single = vec![0.0_f32; 300];
    KEY.uniform(0.0, 1.0, &mut single);
    assert!(whole.iter().zip(&single).all(|(a, b)| *a == f64::from(*b)));
    assert_eq!((0..300).map(|i| unit(KEY.another(i, 0))).collect::<Vec<_>>(), whole);
}

#[test]
fn uniform_numbers_fill_their_range_evenly() {
    let mut x = vec![0.0_f64; N];
    KEY.uniform(-2.0, 3.0, &mut x);
    assert!(x.iter().all(|x| (-2.0..3.0).contains(x)));
    let (mean, variance) = moments(&x);
    assert!((mean - 0.5).abs() < 0.015 && (variance - 25.0 / 12.0).abs() < 0.02, "{mean} {variance}");
    let mut counts = vec![0.0; 100];
    for x in &x {
        counts[((x + 2.0) * 20.0) as usize] += 1.0;
    }
    // 99 degrees of freedom: 149 is passed once in a thousand.
    assert!(chi_square(&counts, &[N as f64 / 100.0; 100]) < 149.0);
    let lagged = x.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum::<f64>() / N as f64;
    assert!(lagged.abs() < 0.02, "neighbours are related: {lagged}");
}

#[test]
fn normal_numbers_have_the_moments_and_tails_of_theirs() {
    let mut x = vec![0.0_f64; N + 1];
    KEY.normal(1.0, 2.0, &mut x);
    let z: Vec<f64> = x.iter().map(|x| (x - 1.0) / 2.0).collect();
    let (mean, variance) = moments(&z);
    let power = |k| z.iter().map(|z| z.powi(k)).sum::<f64>() / z.len() as f64;
    assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.015, "{mean} {variance}");
    assert!(power(3).abs() < 0.03 && (power(4) - 3.0).abs() < 0.1, "{} {}", power(3), power(4));
    let edges: Vec<f64> = (-30..=30).map(|i| f64::from(i) / 10.0).collect();
    let cdf = |z: f64| 0.5 * (1.0 + libm::erf(z / std::f64::consts::SQRT_2));
    let (mut counts, mut expected) = (vec![0.0; 60], vec![0.0; 60]);
    for z in &z {
        if (-3.0..3.0).contains(z) {
            counts[(((z + 3.0) * 10.0) as usize).min(59)] += 1.0;
        }
    }
    (0..60).for_each(|i| expected[i] = (cdf(edges[i + 1]) - cdf(edges[i])) * N as f64);
    assert!(chi_square(&counts, &expected) < 100.0, "{}", chi_square(&counts, &expected));
    let beyond = z.iter().filter(|z| z.abs() > 4.0).count();
    assert!((3..=30).contains(&beyond), "{beyond} beyond four deviations, 12.7 expected");
}

#[test]
fn whole_numbers_are_unbiased_in_ranges_of_any_size() {
    let mut x = vec![0; N];
    KEY.integers(-3, 4, &mut x);
    let mut counts = [0.0; 7];
    for x in &x {
        counts[(x + 3) as usize] += 1.0;
    }
    assert!(chi_square(&counts, &[N as f64 / 7.0; 7]) < 22.5);
    // Three quarters of the words: without rejection the first third would come twice as often.
    KEY.integers(0, 3 << 30, &mut x);
    let low = x.iter().filter(|x| **x < 1 << 30).count() as f64 / N as f64;
    assert!((low - 1.0 / 3.0).abs() < 0.005, "{low}");
    KEY.integers(i64::MIN, i64::MAX, &mut x);
    let negative = x.iter().filter(|x| **x < 0).count() as f64 / N as f64;
    assert!((negative - 0.5).abs() < 0.005, "{negative}");
}

#[test]
fn binomial_numbers_have_their_moments() {
    for (n, p) in [(5, 0.5), (100, 0.02), (100, 0.97), (40, 0.4), (1_000_000, 0.3), (1, 0.25)] {
        let mut x = vec![0.0_f64; N / 4];
        KEY.binomial(n, p, &mut x);
        let (mean, variance) = moments(&x);
        let (m, v) = (n as f64 * p, n as f64 * p * (1.0 - p));
        assert!((mean - m).abs() < 5.0 * (v / x.len() as f64).sqrt(), "({n}, {p}): mean {mean}, not {m}");
        assert!((variance / v - 1.0).abs() < 0.04, "({n}, {p}): variance {variance}, not {v}");
        assert!(x.iter().all(|x| (0.0..=n as f64).contains(x) && x.fract() == 0.0));
    }
    let mut x = vec![9.0_f64; 3];
    KEY.binomial(7, 0.0, &mut x);
    assert_eq!(x, [0.0; 3]);
    KEY.binomial(7, 1.0, &mut x);
    assert_eq!(x, [7.0; 3]);
}

#[test]
fn gamma_and_beta_numbers_have_their_moments() {
    let mut x = vec![0.0_f64; N / 4];
    for (k, theta) in [(0.5, 1.0), (1.0, 2.0), (7.5, 1.0)] {
        KEY.gamma(k, theta, &mut x);
        let (mean, variance) = moments(&x);
        let v = k * theta * theta;
        assert!((mean - k * theta).abs() < 5.0 * (v / x.len() as f64).sqrt(), "({k}, {theta}): mean {mean}");
        assert!((variance / v - 1.0).abs() < 0.06, "({k}, {theta}): variance {variance}, not {v}");
    }
    for (a, b) in [(0.5, 0.5), (5.0, 1.0), (2.0, 5.0)] {
        KEY.beta(a, b, &mut x);
        let (mean, variance) = moments(&x);
        let (m, v) = (a / (a + b), a * b / ((a + b) * (a + b) * (a + b + 1.0)));
        assert!((mean - m).abs() < 5.0 * (v / x.len() as f64).sqrt(), "({a}, {b}): mean {mean}");
        assert!((variance / v - 1.0).abs() < 0.04, "({a}, {b}): variance {variance}, not {v}");
    }
}
