use super::{Layout, normalize};

#[test]
fn a_large_mean_costs_no_digits() {
    let layout = Layout::new(&[4, 3, 250], &[false, true, false], &[false; 3]);
    let x: Vec<f32> = (0..3000).map(|i| 30_000.0 + (i * 7919 % 997) as f32 / 128.0).collect();
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let (mut y, mut wide_y) = (vec![0.0; 3000], vec![0.0; 3000]);
    normalize(&layout, 1e-5, &x, None, None, &mut y);
    normalize(&layout, 1e-5, &wide, None, None, &mut wide_y);
    for (y, exact) in y.iter().zip(wide_y) {
        assert!((f64::from(*y) - exact).abs() < 1e-6, "{y} is not {exact}");
    }
}
