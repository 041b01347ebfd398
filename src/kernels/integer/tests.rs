use super::matrix::{LevelMatrix, LevelRows, MatrixSize, SPARE};
use super::product::multiply_by;
use super::tile::packed_otherwise::all;
use super::{
    ColumnTerms, ImageWindow, Levels, QuantizedWeights, Rounding, ToLevels, ToNumbers, levels, multiply_each,
};
use crate::kernels::epilogue::{Activation, Tail, Twice};
use crate::kernels::threads;

/// Pseudorandom numbers, the same for each call.
fn drawn(n: usize, seed: usize) -> impl Iterator<Item = u8> {
    let mut state = seed as u64 | 1;
    (0..n).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// The sum for a position and a map, by a plain loop.
fn sum(x: &[u8], zero: u8, w: &[i32], window: &ImageWindow, at: [usize; 3]) -> i32 {
    let (mut total, mut term) = (0, 0);
    for i in 0..window.kernel[0] {
        for j in 0..window.kernel[1] {
            let line = (at[1] * window.stride[0] + i * window.dilation[0]).checked_sub(window.pad[0]);
            let column = (at[2] * window.stride[1] + j * window.dilation[1]).checked_sub(window.pad[1]);
            let inside = |at: Option<usize>, axis: usize| at.filter(|at| *at < window.input[axis]);
            for c in 0..window.channels {
                if let (Some(line), Some(column)) = (inside(line, 0), inside(column, 1)) {
                    let pixel = (at[0] * window.input[0] + line) * window.input[1] + column;
                    total += (i32::from(x[pixel * window.channels + c]) - i32::from(zero)) * w[term];
                }
                term += 1;
            }
        }
    }
    total
}

/// A window with stride and dilation 1 and no padding.
fn window(images: usize, channels: usize, input: [usize; 2], kernel: [usize; 2]) -> ImageWindow {
    let output = [input[0] + 1 - kernel[0], input[1] + 1 - kernel[1]];
    ImageWindow { images, channels, input, output, kernel, pad: [0; 2], stride: [1; 2], dilation: [1; 2] }
}

/// The window with these strides, pads and dilations.
fn moved(window: ImageWindow, pad: [usize; 2], stride: [usize; 2], dilation: [usize; 2]) -> ImageWindow {
    let reach = |i: usize| (window.kernel[i] - 1) * dilation[i] + 1;
    let output = std::array::from_fn(|i| (window.input[i] + 2 * pad[i] - reach(i)) / stride[i] + 1);
    ImageWindow { output, pad, stride, dilation, ..window }
}

/// Compares sums by all kernels of the machine with plain loops.
fn check(window: &ImageWindow, maps: usize, zeros: &[i64]) {
    let terms = window.kernel[0] * window.kernel[1] * window.channels;
    let n = window.images * window.input[0] * window.input[1] * window.channels;
    let x: Vec<u8> = drawn(n, 1 + n).collect();
    let w: Vec<i8> = drawn(maps * terms, 7 + maps).map(u8::cast_signed).collect();
    let bias: Vec<i64> = drawn(maps, 3).map(|v| i64::from(v) * 100 - 5000).collect();
    let zero = 77;
    let mut expected = Vec::new();
    for image in 0..window.images {
        for line in 0..window.output[0] {
            for column in 0..window.output[1] {
                for map in 0..maps {
                    let own = if zeros.len() == 1 { zeros[0] } else { zeros.get(map).copied().unwrap_or(0) };
                    let weights: Vec<i32> =
                        w[map * terms..][..terms].iter().map(|w| i32::from(*w) - own as i32).collect();
                    expected.push(sum(&x, zero, &weights, window, [image, line, column]) + bias[map] as i32);
                }
            }
        }
    }
    let scales: Vec<f32> = (0..maps).map(|i| 0.01 / (i + 3) as f32).collect();
    let rounding = Rounding::new(100, [3, 250]);
    let rounded = expected.iter().enumerate().map(|(i, sum)| {
        let v = (*sum as f32 * scales[i % maps.max(1)]).round_ties_even() + 100.0;
        v.clamp(3.0, 250.0) as u8
    });
    let rounded: Vec<u8> = rounded.collect();
    for kernels in all() {
        let columns = ColumnTerms { bias: &bias, zeros };
        let weights = QuantizedWeights::of_columns(&w, maps, terms);
        let mut numbers = vec![f64::NAN; expected.len()];
        let to_numbers = ToNumbers::new(&mut numbers, maps, &[1.0], &[], Tail::NOTHING);
        multiply_by(kernels, &Levels { x: &x, zero }, weights, None, window, &columns, &to_numbers);
        let case = format!("{window:?}, {maps} maps, zeros {zeros:?}, {} columns a register", kernels.width);
        assert!(numbers.iter().zip(&expected).all(|(a, b)| *a == f64::from(*b)), "{case}");
        let twice = Twice::<f32>(std::marker::PhantomData);
        let tail = Tail { activation: Activation::Relu, rows: Some(&twice) };
        let (mut numbers, shifts) = (vec![f32::NAN; expected.len()], vec![3.0; maps]);
        let to_numbers = ToNumbers::new(&mut numbers, maps, &scales, &shifts, tail);
        multiply_by(kernels, &Levels { x: &x, zero }, weights, None, window, &columns, &to_numbers);
        let whole =
            expected.iter().enumerate().map(|(i, sum)| (*sum as f32 * scales[i % maps] + 3.0).max(0.0) * 2.0);
        assert!(numbers.iter().copied().eq(whole), "{case}");
        let mut found = vec![0; expected.len()];
        let to_levels = ToLevels::new(&mut found, maps, &scales, rounding);
        multiply_by(kernels, &Levels { x: &x, zero }, weights, None, window, &columns, &to_levels);
        assert_eq!(found, rounded, "{case}");
    }
}

#[test]
fn rows_of_any_length_are_exact() {
    for rows in [0, 1, 2, 5, 6, 7, 13] {
        for terms in [0, 1, 3, 4, 8, 17, 64] {
            for columns in [1, 7, 16, 33, 64, 65, 100] {
                check(&ImageWindow::of_rows(rows, terms), columns, &[]);
            }
        }
    }
    check(&ImageWindow::of_rows(1500, 12), 70, &[-3]);
}

#[test]
fn rows_that_tiles_read_in_place_or_in_parts_are_exact() {
    let n = threads::num_threads();
    for count in [1, 2] {
        threads::set_num_threads(count);
        // In place, and a last tile that is copied.
        check(&ImageWindow::of_rows(70, 192), 100, &[]);
        // More terms than stay in the L1 cache.
        check(&ImageWindow::of_rows(37, 1100), 17, &[-3]);
    }
    threads::set_num_threads(n);
    // More rows than are copied together.
    check(&ImageWindow::of_rows(33, 8200), 3, &[]);
    // Pixels in place, of several lines and images.
    check(&window(2, 64, [5, 7], [1, 1]), 40, &[2]);
    check(&moved(window(2, 64, [9, 9], [1, 1]), [0, 0], [2, 2], [1, 1]), 17, &[]);
}

#[test]
fn many_extreme_terms_are_exact() {
    let (rows, terms, columns) = (40, 4200, 18);
    for (level, weight) in [(255, -128_i8), (255, 127), (0, -128), (1, -1)] {
        let (x, w) = (vec![level; rows * terms], vec![weight; columns * terms]);
        let sum = i32::from(level) * i32::from(weight) * terms as i32;
        for kernels in all() {
            let mut y = vec![f64::NAN; rows * columns];
            let output = ToNumbers::new(&mut y, columns, &[1.0], &[], Tail::NOTHING);
            let weights = QuantizedWeights::of_columns(&w, columns, terms);
            let (none, window) = (ColumnTerms { bias: &[], zeros: &[] }, ImageWindow::of_rows(rows, terms));
            multiply_by(kernels, &Levels { x: &x, zero: 0 }, weights, None, &window, &none, &output);
            assert!(y.iter().all(|y| *y == f64::from(sum)), "{level} times {weight}");
        }
    }
}

#[test]
fn matrices_of_levels_are_exact() {
    for (rows, terms, columns, with_zeros) in [
        (1, 1, 1, false),
        (2, 7, 5, true),
        (6, 8, 33, false),
        (7, 13, 70, true),
        (1, 20, 64, true),
        (3, 0, 4, true),
        (70, 192, 70, true),
        (34, 1100, 20, false),
    ] {
        let size = MatrixSize { terms, columns };
        let w: Vec<i8> = drawn(terms * columns, 5).map(u8::cast_signed).collect();
        let row = terms + 3;
        let levels: Vec<u8> = drawn(rows * row + SPARE, 6).collect();
        let zero_of = |j: usize| if with_zeros { j as i32 % 5 - 2 } else { 0 };
        let sum = |i: usize, j: usize| {
            let term = |p: usize| {
                (i32::from(levels[i * row + p]) - 77) * (i32::from(w[p * columns + j]) - zero_of(j))
            };
            f64::from((0..terms).map(term).sum::<i32>()) * 0.5 + j as f64
        };
        let expected: Vec<f64> = (0..rows * columns).map(|at| sum(at / columns, at % columns)).collect();
        for kernels in all() {
            let mut packed = vec![0; size.bytes_for(kernels)];
            size.pack_for(kernels, &w, &mut packed);
            let shifts: Vec<f64> = (0..columns + 64).map(|j| j as f64).collect();
            let x = LevelRows { levels: &levels, row, count: rows, scale: 2.0, zero: 77 };
            let mut y = vec![f64::NAN; rows * columns];
            LevelMatrix::of_kernels(kernels, size, &packed, zero_of, |_| 0.25).multiply(x, &shifts, &mut y);
            assert_eq!(y, expected, "{rows} x {terms} x {columns}, {} columns a register", kernels.width);
            let shifts: Vec<f32> = shifts.iter().map(|v| *v as f32).collect();
            let x = LevelRows { levels: &levels, row, count: rows, scale: 2.0, zero: 77 };
            let mut y = vec![f32::NAN; rows * columns];
            LevelMatrix::of_kernels(kernels, size, &packed, zero_of, |_| 0.25).multiply(x, &shifts, &mut y);
            assert!(y.iter().map(|v| f64::from(*v)).eq(expected.iter().copied()));
        }
    }
}

#[test]
fn windows_that_reach_into_the_padding_are_exact() {
    for (channels, maps) in [(1, 3), (3, 20), (4, 65), (8, 1), (16, 40)] {
        for kernel in [[1, 1], [3, 3], [2, 5]] {
            let whole = window(2, channels, [7, 9], kernel);
            check(&whole, maps, &[]);
            check(&moved(whole, [1, 2], [1, 1], [1, 1]), maps, &[]);
            check(&moved(whole, [0, 1], [2, 3], [1, 1]), maps, &[5]);
            check(&moved(whole, [2, 2], [1, 2], [2, 2]), maps, &[]);
            check(&moved(whole, [1, 1], [2, 1], [2, 1]), maps, &(0..maps as i64).collect::<Vec<_>>());
        }
    }
    // Blocks of several images, and of some lines of one.
    check(&moved(window(50, 8, [5, 5], [3, 3]), [1, 1], [1, 1], [1, 1]), 5, &[]);
    check(&moved(window(1, 4, [70, 40], [3, 3]), [1, 1], [1, 1], [1, 1]), 5, &[1]);
}

#[test]
fn depthwise_sums_are_exact() {
    for channels in [1, 5, 16, 33] {
        for (pad, stride, dilation) in
            [([0; 2], [1; 2], [1; 2]), ([1, 2], [2, 1], [1; 2]), ([2, 0], [1, 3], [2, 1])]
        {
            let window = moved(window(2, channels, [9, 8], [3, 2]), pad, stride, dilation);
            let x: Vec<u8> = drawn(2 * 9 * 8 * channels, channels).collect();
            let w: Vec<i8> = drawn(6 * channels, 4).map(u8::cast_signed).collect();
            let (zero, zeros) = (9, [3_i64]);
            let bias: Vec<i64> = (0..channels as i64).collect();
            let mut expected = Vec::new();
            for place in 0..window.positions() {
                let (width, height) = (window.output[1], window.output[0]);
                let at = [place / width / height, place / width % height, place % width];
                for c in 0..channels {
                    let alone: Vec<u8> = x.iter().skip(c).step_by(channels).copied().collect();
                    let own: Vec<i32> = w[c * 6..][..6].iter().map(|w| i32::from(*w) - 3).collect();
                    let one = ImageWindow { channels: 1, ..window };
                    expected.push(sum(&alone, zero, &own, &one, at) + c as i32);
                }
            }
            let levels = Levels { x: &x, zero };
            let columns = ColumnTerms { bias: &bias, zeros: &zeros };
            let mut numbers = vec![0.0_f32; expected.len()];
            let output = ToNumbers::new(&mut numbers, channels, &[1.0], &[2.0], Tail::NOTHING);
            multiply_each(&levels, &w, &window, &columns, &output);
            assert!(numbers.iter().zip(&expected).all(|(a, b)| *a == *b as f32 + 2.0), "{window:?}");
            let (mut found, rounding) = (vec![0; expected.len()], Rounding::new(100, [3, 250]));
            multiply_each(
                &levels,
                &w,
                &window,
                &columns,
                &ToLevels::new(&mut found, channels, &[0.003_f32], rounding),
            );
            assert!(
                found.iter().zip(&expected).all(|(a, b)| *a == rounding.level(*b as f32 * 0.003)),
                "{window:?}"
            );
        }
    }
}

#[test]
fn extreme_terms_do_not_saturate() {
    let (x, w) = (vec![255; 64], vec![-128_i8; 64]);
    for kernels in all() {
        let mut y = [0.0_f32];
        let output = ToNumbers::new(&mut y, 1, &[1.0], &[], Tail::NOTHING);
        let columns = ColumnTerms { bias: &[], zeros: &[] };
        let weights = QuantizedWeights::of_columns(&w, 1, 64);
        multiply_by(
            kernels,
            &Levels { x: &x, zero: 0 },
            weights,
            None,
            &ImageWindow::of_rows(1, 64),
            &columns,
            &output,
        );
        assert_eq!(y, [-255.0 * 128.0 * 64.0]);
    }
}

#[test]
fn levels_of_activations_are_weights_less_128() {
    let (m, k, n) = (5, 9, 21);
    let (a, b): (Vec<u8>, Vec<u8>) = (drawn(m * k, 1).collect(), drawn(k * n, 2).collect());
    for in_columns in [false, true] {
        let at = |p: usize, j: usize| b[if in_columns { j * k + p } else { p * n + j }];
        let expected = (0..m * n).map(|i| {
            let term = |p| (i32::from(a[i / n * k + p]) - 3) * (i32::from(at(p, i % n)) - 130);
            (0..k).map(term).sum::<i32>() as f32 + 0.5
        });
        let expected: Vec<f32> = expected.collect();
        for kernels in all() {
            let mut y = vec![0.0_f32; m * n];
            let output = ToNumbers::new(&mut y, n, &[1.0], &[0.5], Tail::NOTHING);
            let weights = QuantizedWeights::of_levels(&b, k, n, in_columns);
            let columns = ColumnTerms { bias: &[], zeros: &[2] };
            multiply_by(
                kernels,
                &Levels { x: &a, zero: 3 },
                weights,
                None,
                &ImageWindow::of_rows(m, k),
                &columns,
                &output,
            );
            assert_eq!(y, expected);
        }
    }
}

#[test]
fn numbers_are_rounded_half_to_even_and_saturate() {
    let x = [-1e9, -3.5, -2.5, -0.5, 0.5, 1.5, 2.4, f32::NAN, f32::INFINITY];
    let mut y = [0; 9];
    levels::quantize(&x, 1.0, Rounding::new(2, [0, 255]), &mut y);
    assert_eq!(y, [0, 0, 0, 2, 2, 4, 4, 0, 255]);
}

#[test]
fn ranges_of_levels_include_zero() {
    for n in [0, 1, 15, 64, 65, 1000, 40_000] {
        let mut x: Vec<f32> = drawn(n, 9).map(|v| f32::from(v) / 100.0 - 1.0).collect();
        let expected = x.iter().fold((0.0, 0.0), |(low, high): (f32, f32), v| (low.min(*v), high.max(*v)));
        assert_eq!(levels::bounds(&x), expected);
        for v in &mut x {
            *v = v.abs() + 1.0;
        }
        assert_eq!(levels::bounds(&x).0, 0.0);
        x.extend([f32::NAN; 70]);
        assert_eq!(levels::bounds(&x).0, 0.0);
        assert_eq!(levels::bounds(&x.iter().map(|v| f64::from(-*v)).collect::<Vec<_>>()).1, 0.0);
    }
}
