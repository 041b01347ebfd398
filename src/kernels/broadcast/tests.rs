//! Compares broadcast loops with index arithmetic, for many kinds of shapes.

use super::BroadcastLayout;
use crate::array::Shape;
use crate::kernels::threads::{Shared, num_threads, set_num_threads};

/// Compatible shapes: equal, rows, columns, scattered axes, short and long, empty.
const SHAPES: [(&[usize], &[usize]); 17] = [
    (&[], &[]),
    (&[7], &[7]),
    (&[3, 5], &[5]),
    (&[3, 1], &[3, 5]),
    (&[3, 1], &[1, 5]),
    (&[300, 40], &[1, 40]),
    (&[300, 40], &[300, 1]),
    (&[2, 3, 1, 700], &[3, 4, 1]),
    (&[4, 3, 5, 7], &[1, 3, 1, 1]),
    (&[4, 3, 5, 7], &[4, 1, 5, 1]),
    (&[33, 3, 1100], &[1, 3, 1]),
    (&[20_000, 3], &[3]),
    (&[3, 70_000], &[70_000]),
    (&[3, 70_000], &[3, 1]),
    (&[100_001], &[1]),
    (&[0, 3], &[1, 3]),
    (&[2, 0], &[2, 1]),
];

/// `n` values between -0.5 and 0.5.
fn values(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i * 7919 % 1013) as f64 / 1013.0 - 0.5).collect()
}

/// For each element of the result, the indices of the elements of both operands.
fn index_pairs(a: &Shape, b: &Shape) -> Vec<(usize, usize)> {
    let shape = BroadcastLayout::shape(a, b).expect("they meet");
    let strides = shape.strides();
    let at = |of: &Shape, i: usize| -> usize {
        let lead = shape.ndim() - of.ndim();
        let own = of.strides();
        let axis = |k: usize| if of[k] == 1 { 0 } else { i / strides[k + lead] % shape[k + lead] * own[k] };
        (0..of.ndim()).map(axis).sum()
    };
    (0..shape.size()).map(|i| (at(a, i), at(b, i))).collect()
}

#[test]
fn elements_are_paired_by_the_rules_of_broadcasting() {
    for (a, b) in SHAPES.iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
        let (a, b) = (Shape::from(*a), Shape::from(*b));
        let (x, w, at) = (values(a.size()), values(b.size()), index_pairs(&a, &b));
        let broadcast = BroadcastLayout::new(&a, &b);
        assert_eq!(broadcast.size(), at.len(), "{a} and {b}");
        let expected: Vec<_> = at.iter().map(|(i, k)| x[*i] - w[*k]).collect();
        let mut y = vec![9.0; at.len()];
        // SAFETY: the arrays have the shapes of the broadcast. Same below.
        unsafe { broadcast.map(x.as_ptr(), w.as_ptr(), y.as_mut_ptr(), |x, w| x - w) };
        assert_eq!(y, expected, "{a} and {b}");
        let numbers: Vec<f64> = (0..at.len()).map(|i| i as f64).collect();
        broadcast.put([&x, &w], [&numbers], &mut y, true, |x, w, [i]| x - w + i);
        assert!(y.iter().zip(&expected).enumerate().all(|(i, (y, e))| *y == e + (e + i as f64)));
        let to = Shared::new(y.as_mut_ptr());
        // SAFETY: each index of `y` is visited once.
        broadcast.each(|i, k, o| unsafe { to.get().add(o).write(x[i] - w[k]) });
        assert_eq!(y, expected, "{a} and {b}");
        for accumulate in [false, true] {
            let twice: Vec<_> =
                expected.iter().map(|v| if accumulate { v + (v + v) } else { v + v }).collect();
            let mut y = expected.clone();
            broadcast.write_many([&x, &x], [&w], &mut y, accumulate, |[x, again], [w]| (x - w) + (again - w));
            assert_eq!(y, twice, "{a} and {b}");
            y.clone_from(&expected);
            broadcast.put_many([&x], [&w, &w], &mut y, accumulate, |[x], [w, again]| (x - w) + (x - again));
            assert_eq!(y, twice, "{a} and {b}");
        }
        let mut sums = vec![[0.0; 2]; a.size()];
        at.iter().enumerate().for_each(|(o, (i, k))| {
            sums[*i][0] += w[*k];
            sums[*i][1] += y[o];
        });
        let [first, second] = broadcast.sums(|_, k, o| [w[k], y[o]]);
        assert_eq!((first.len(), second.len()), (sums.len(), sums.len()), "{a} and {b}");
        for (i, exact) in sums.iter().enumerate() {
            let near = (first[i] - exact[0]).abs() < 1e-9 && (second[i] - exact[1]).abs() < 1e-9;
            assert!(near, "{a} and {b}: sums {i} are {} and {}, not {exact:?}", first[i], second[i]);
        }
    }
}

#[test]
fn sums_do_not_depend_on_the_number_of_threads() {
    let before = num_threads();
    for (a, b) in SHAPES.iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
        let (a, b) = (Shape::from(*a), Shape::from(*b));
        let (w, broadcast) = (values(b.size()), BroadcastLayout::new(&a, &b));
        let sums = |threads| {
            set_num_threads(threads);
            let [sums] = broadcast.sums(|_, k, o| [w[k] * (o % 17) as f64 / 3.0]);
            sums.to_vec()
        };
        assert_eq!(sums(1), sums(3), "{a} and {b}");
    }
    set_num_threads(before);
}
