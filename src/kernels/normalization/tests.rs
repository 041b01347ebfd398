use super::{Gradients, NormLayout, SmallGradients, Stats, Wanted, normalize, normalize_by};
use crate::kernels::Float;
use crate::kernels::epilogue::Tail;
use crate::kernels::threads::{num_threads, set_num_threads};

/// Lengths, which axes have statistics and which have scales: batches, layers, groups and instances, channels first and
/// last, long and short.
const LAYOUTS: [(&[usize], &[u8], &[u8]); 16] = [
    (&[8, 3, 250], &[0, 1, 0], &[0, 1, 0]),
    (&[40, 33, 16], &[0, 1, 0], &[0, 1, 0]),
    (&[300, 70], &[0, 1], &[0, 1]),
    (&[9, 1100], &[1, 0], &[0, 1]),
    (&[300, 77], &[1, 0], &[0, 1]),
    (&[21, 5, 7], &[1, 0, 0], &[0, 1, 1]),
    (&[6, 4, 3, 50], &[1, 1, 0, 0], &[0, 1, 1, 0]),
    (&[6, 50, 4, 3], &[1, 0, 1, 0], &[0, 0, 1, 1]),
    (&[30, 8, 100], &[1, 1, 0], &[0, 1, 0]),
    (&[30, 8, 100], &[1, 1, 0], &[1, 1, 0]),
    (&[30, 100, 8], &[1, 0, 1], &[0, 0, 1]),
    (&[5, 60, 7], &[1, 0, 1], &[0, 1, 0]),
    (&[7, 90, 3], &[0, 1, 0], &[0, 0, 0]),
    (&[5000], &[0], &[0]),
    (&[3, 20_000], &[1, 0], &[0, 1]),
    (&[0, 4, 3], &[0, 1, 0], &[0, 1, 0]),
];

/// The layout of a shape with marks for kept and scaled axes, and its size.
fn layout((dims, kept, scaled): &(&[usize], &[u8], &[u8])) -> (NormLayout, usize) {
    let marks = |of: &[u8]| of.iter().map(|v| *v == 1).collect::<Vec<_>>();
    (NormLayout::new(dims, &marks(kept), &marks(scaled)), dims.iter().product())
}

/// Numbers around `mean` that `f32` holds to the bit.
fn values<T: Float>(n: usize, seed: usize, mean: f64) -> Vec<T> {
    (0..n).map(|i| T::of(mean + ((i + seed * 101) * 7919 % 1021) as f64 / 128.0 - 4.0)).collect()
}

/// The normalized array and all gradients. If `given` is true, the statistics are arguments.
fn everything<T: Float>(
    layout: &NormLayout,
    n: usize,
    mean: f64,
    given: bool,
) -> (Vec<T>, Vec<T>, SmallGradients<T>) {
    let x = values::<T>(n, 1, mean);
    let (gamma, beta) = (values::<T>(layout.n_params, 2, 0.0), values::<T>(layout.n_params, 3, 0.0));
    let (gy, mut gx, mut y) = (values::<T>(n, 4, 0.0), values::<T>(n, 5, 0.0), vec![T::ZERO; n]);
    let moments = normalize(layout, 1e-3, &x, Some(&gamma), Some(&beta), &mut y, Tail::NOTHING);
    let stats = Stats::new(&moments.mean, &moments.variance, 1e-3);
    if given {
        normalize_by(layout, &stats, &x, Some(&gamma), Some(&beta), &mut y, Tail::NOTHING);
    }
    let outer = values::<T>(layout.n_stats, 6, 0.0);
    let outer = (!given).then_some((&outer[..], &outer[..]));
    let gradients = Gradients::new(layout, (&stats, given), &x, Some(&gamma), &gy, outer);
    let found = gradients.find(Wanted { x: Some((&mut gx, true)), params: true, stats: given });
    (y, gx, found)
}

/// Asserts that the errors are within `bound` times the largest number.
fn assert_near(got: &[f32], exact: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), exact.len(), "{what}");
    let largest = exact.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
    for (i, (got, exact)) in got.iter().zip(exact).enumerate() {
        // The statistics of no elements are no numbers.
        let near = (f64::from(*got) - exact).abs() <= bound * largest || (got.is_nan() && exact.is_nan());
        assert!(near, "{what} {i}: {got} is not {exact}");
    }
}

#[test]
fn single_precision_is_near_double_whatever_the_mean() {
    for of in &LAYOUTS {
        let (layout, n) = layout(of);
        for (mean, given) in [(0.0, false), (10_000.0, false), (0.0, true)] {
            let (y, gx, found) = everything::<f32>(&layout, n, mean, given);
            let (exact_y, exact_gx, exact) = everything::<f64>(&layout, n, mean, given);
            assert_near(&y, &exact_y, 1e-6, &format!("{of:?} y"));
            assert_near(&gx, &exact_gx, 2e-6, &format!("{of:?} gx"));
            let wanted = if given { 2 } else { 1 };
            for (of_kind, exact) in found.iter().zip(&exact).take(wanted) {
                for (got, exact) in of_kind.iter().zip(exact) {
                    assert_near(got, exact, 2e-6, &format!("{of:?} small gradients"));
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let before = num_threads();
    for of in &LAYOUTS {
        let (layout, n) = layout(of);
        let bits = |threads| {
            set_num_threads(threads);
            let (y, gx, found) = everything::<f32>(&layout, n, 3.0, false);
            let found = found[0].iter().flat_map(|found| found.to_vec());
            let all = y.into_iter().chain(gx).chain(found);
            all.map(f32::to_bits).collect::<Vec<_>>()
        };
        assert!(bits(1) == bits(3), "{of:?}");
    }
    set_num_threads(before);
}

#[test]
fn a_large_mean_costs_no_digits() {
    for kept in [[false, true, false], [true, false, false], [false, false, true]] {
        let layout = NormLayout::new(&[4, 3, 250], &kept, &[false; 3]);
        let x: Vec<f32> = (0..3000).map(|i| 30_000.0 + (i * 7919 % 997) as f32 / 128.0).collect();
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let (mut y, mut wide_y) = (vec![0.0; 3000], vec![0.0; 3000]);
        normalize(&layout, 1e-5, &x, None, None, &mut y, Tail::NOTHING);
        normalize(&layout, 1e-5, &wide, None, None, &mut wide_y, Tail::NOTHING);
        for (y, exact) in y.iter().zip(wide_y) {
            assert!((f64::from(*y) - exact).abs() < 1e-6, "{y} is not {exact}");
        }
    }
}
