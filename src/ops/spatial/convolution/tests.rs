//! Tests of convolution and related operations against explicit sums.

use super::{Convolution, ConvolutionFilterGrad};
use crate::array::Shape;
use crate::ops::spatial::deconvolution::Deconvolution;
use crate::ops::spatial::depthwise::DepthwiseConvolution;
use crate::ops::testing::{Tensor, check_forward, check_gradient};
use crate::ops::{Compute, Op};

/// A tensor of sample values by seed.
fn sample(shape: &[usize], seed: u64) -> Tensor {
    let shape = Shape::from(shape);
    Tensor {
        data: (0..shape.size()).flat_map(|i| Tensor::sample([1], seed * 1000 + i as u64).data).collect(),
        shape,
    }
}

/// All indices of an array, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, n| {
        all.into_iter().flat_map(|i| (0..*n).map(move |k| [i.clone(), vec![k]].concat())).collect()
    })
}

/// The offset of an index in an array.
fn at(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |at, (n, i)| at * n + i)
}

/// The tensor with axis `from` moved to `to`.
fn moved(t: &Tensor, from: usize, to: usize) -> Tensor {
    let mut axes: Vec<usize> = (0..t.shape.ndim()).collect();
    let axis = axes.remove(from);
    axes.insert(to, axis);
    let shape: Shape = axes.iter().map(|a| t.shape[*a]).collect();
    let data = indices(&shape).into_iter().map(|index| {
        let mut source = vec![0; axes.len()];
        axes.iter().zip(index).for_each(|(a, i)| source[*a] = i);
        t.data[at(&t.shape, &source)]
    });
    Tensor { data: data.collect(), shape }
}

/// One set of arguments. Sizes are the sizes of a convolution; for a deconvolution, input and output are exchanged.
#[derive(Clone, Default)]
struct Case {
    /// The axes before the channels.
    batch: Vec<usize>,
    /// The number of input channels.
    channels: usize,
    /// The number of output channels.
    maps: usize,
    /// The number of groups.
    group: usize,
    /// The spatial shape of the input.
    input: Vec<usize>,
    /// The shape of the kernel.
    kernel: Vec<usize>,
    /// The padding at each end of each axis.
    pad: Vec<i64>,
    /// The distance of adjacent outputs along each axis.
    stride: Vec<i64>,
    /// The distance of adjacent kernel elements along each axis.
    dilation: Vec<i64>,
}

impl Case {
    /// Elements along axis `i` from the first to the last that a dilated kernel touches.
    fn reach(&self, i: usize) -> i64 {
        self.dilation[i] * (self.kernel[i] as i64 - 1) + 1
    }

    /// Spatial lengths of the output.
    fn output(&self) -> Vec<usize> {
        let n = |i: usize| (self.input[i] as i64 + 2 * self.pad[i] - self.reach(i)) / self.stride[i] + 1;
        (0..self.input.len()).map(|i| n(i) as usize).collect()
    }

    /// The shape of the input, channels first.
    fn x_shape(&self) -> Vec<usize> {
        [&self.batch[..], &[self.channels], &self.input].concat()
    }

    /// The shape of the output, channels first.
    fn y_shape(&self) -> Vec<usize> {
        [&self.batch[..], &[self.maps], &self.output()].concat()
    }

    /// The shape of the weight, channels first.
    fn w_shape(&self) -> Vec<usize> {
        [&[self.maps, self.channels / self.group], &self.kernel[..]].concat()
    }

    /// Calls `f(element of x, element of w, element of y)` for each product of a convolution with channels first.
    fn meet(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (per_group, of_group) = (self.channels / self.group, self.maps / self.group);
        let (n_axes, taps) = (self.input.len(), indices(&self.w_shape()[1..]));
        for (iy, y) in indices(&self.y_shape()).iter().enumerate() {
            let (batch, rest) = y.split_at(self.batch.len());
            let image = at(&self.batch, batch);
            for (tap, w) in taps.iter().enumerate() {
                let mut ix = image * self.channels + rest[0] / of_group * per_group + w[0];
                let mut inside = true;
                for i in 0..n_axes {
                    let place = rest[1 + i] as i64 * self.stride[i] + w[1 + i] as i64 * self.dilation[i]
                        - self.pad[i];
                    inside &= 0 <= place && place < self.input[i] as i64;
                    ix = ix.wrapping_mul(self.input[i]).wrapping_add(place as usize);
                }
                if inside {
                    f(ix, rest[0] * taps.len() + tap, iy);
                }
            }
        }
    }

    /// `y + b` with channels first. `b` has one number for each channel.
    fn biased(&self, mut y: Tensor, b: Option<&Tensor>) -> Tensor {
        let (channels, inner) = (y.shape[self.batch.len()], y.shape.size_from(self.batch.len() + 1));
        if let Some(b) = b {
            y.data.iter_mut().enumerate().for_each(|(i, y)| *y += b.data[i / inner % channels]);
        }
        y
    }

    /// The convolution in plain loops.
    fn convolution(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Tensor {
        let shape = Shape::from(self.y_shape());
        let mut y = Tensor { data: vec![0.0; shape.size()], shape };
        self.meet(|ix, iw, iy| y.data[iy] += x.data[ix] * w.data[iw]);
        self.biased(y, b)
    }

    /// The transposed convolution in plain loops.
    fn deconvolution(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Tensor {
        let shape = Shape::from(self.x_shape());
        let mut y = Tensor { data: vec![0.0; shape.size()], shape };
        self.meet(|iy, iw, ix| y.data[iy] += x.data[ix] * w.data[iw]);
        self.biased(y, b)
    }

    /// The gradient of the weight in plain loops.
    fn filter_grad(&self, gy: &Tensor, x: &Tensor) -> Tensor {
        let shape = Shape::from(self.w_shape());
        let mut gw = Tensor { data: vec![0.0; shape.size()], shape };
        self.meet(|ix, iw, iy| gw.data[iw] += x.data[ix] * gy.data[iy]);
        gw
    }
}

/// A case: `sizes` are channels, maps and groups; `steps` are padding, stride and dilation.
fn case(batch: &[usize], sizes: [usize; 3], input: &[usize], kernel: &[usize], steps: [&[i64]; 3]) -> Case {
    let [channels, maps, group] = sizes;
    let [pad, stride, dilation] = steps.map(<[i64]>::to_vec);
    let (batch, input, kernel) = (batch.to_vec(), input.to_vec(), kernel.to_vec());
    Case { batch, channels, maps, group, input, kernel, pad, stride, dilation }
}

/// Convolutions of all kinds of arguments.
fn cases() -> Vec<Case> {
    vec![
        case(&[2], [1, 1, 1], &[1], &[1], [&[0], &[1], &[1]]),
        case(&[2], [2, 4, 2], &[10], &[1], [&[3], &[2], &[1]]),
        case(&[2], [2, 3, 1], &[7], &[3], [&[0], &[1], &[2]]),
        case(&[], [2, 2, 1], &[5], &[4], [&[2], &[3], &[1]]),
        // Pointwise, with and without groups.
        case(&[2], [3, 5, 1], &[3, 2], &[1, 1], [&[0, 0], &[1, 1], &[1, 1]]),
        case(&[2], [4, 6, 2], &[3, 2], &[1, 1], [&[0, 0], &[1, 1], &[1, 1]]),
        // Different padding, stride and dilation along each axis.
        case(&[2], [2, 4, 2], &[7, 6], &[3, 2], [&[3, 0], &[1, 2], &[2, 1]]),
        case(&[2, 1], [3, 2, 1], &[5, 5], &[3, 3], [&[1, 1], &[2, 2], &[1, 1]]),
        case(&[1], [2, 2, 1], &[4, 3], &[2, 3], [&[0, 2], &[3, 1], &[1, 2]]),
        // One channel in each group.
        case(&[2], [3, 3, 3], &[5, 4], &[3, 2], [&[1, 0], &[2, 1], &[1, 2]]),
        case(&[1], [2, 6, 2], &[4, 5], &[2, 3], [&[0, 1], &[1, 2], &[2, 1]]),
        case(&[1], [2, 4, 2], &[3, 4, 3], &[2, 3, 2], [&[1, 0, 1], &[1, 2, 1], &[2, 1, 1]]),
        // The kernel covers more padding than input.
        case(&[1], [1, 2, 1], &[1, 2], &[3, 5], [&[2, 4], &[1, 1], &[1, 1]]),
        case(&[0], [2, 2, 1], &[4, 4], &[3, 3], [&[0, 0], &[1, 1], &[1, 1]]),
    ]
}

/// Runs a check with channels first and channels last: `f(case, channel_last, conversion to the layout)`.
fn in_both_layouts(f: impl Fn(&Case, bool, &dyn Fn(&Tensor, usize) -> Tensor)) {
    for case in cases() {
        f(&case, false, &|t, _| t.clone());
        f(&case, true, &|t, channel| moved(t, channel, t.shape.ndim() - 1));
    }
}

/// The operation of a case.
fn convolution(c: &Case, channel_last: bool) -> Convolution {
    let (pad, stride, dilation) = (Some(c.pad.clone()), Some(c.stride.clone()), Some(c.dilation.clone()));
    let (base_axis, group) = (c.batch.len() as i64, c.group as i64);
    Convolution { base_axis, pad, stride, dilation, group, channel_last }
}

#[test]
fn convolution_equals_its_formula() {
    in_both_layouts(|c, channel_last, laid| {
        let (x, w, b) = (sample(&c.x_shape(), 1), sample(&c.w_shape(), 2), sample(&[c.maps], 3));
        let op = Op::new(convolution(c, channel_last));
        let n = c.batch.len();
        let (lx, lw) = (laid(&x, n), laid(&w, 1));
        check_forward(&op, &[lx.clone(), lw.clone()], &[laid(&c.convolution(&x, &w, None), n)]);
        check_forward(
            &op,
            &[lx.clone(), lw.clone(), b.clone()],
            &[laid(&c.convolution(&x, &w, Some(&b)), n)],
        );
        check_gradient(&op, &[lx.clone(), lw.clone()], &[true, true]);
        check_gradient(&op, &[lx, lw, b], &[true, true, true]);
    });
}

#[test]
fn the_gradient_by_the_weight_equals_its_formula_and_can_be_differentiated() {
    in_both_layouts(|c, channel_last, laid| {
        let (x, gy) = (sample(&c.x_shape(), 1), sample(&c.y_shape(), 2));
        let (n, gw) = (c.batch.len(), laid(&c.filter_grad(&gy, &x), 1));
        let shape = gw.shape.iter().map(|d| *d as i64).collect();
        let op = Op::new(ConvolutionFilterGrad::laid_out(&convolution(c, channel_last).layout(), shape));
        let inputs = [laid(&gy, n), laid(&x, n)];
        check_forward(&op, &inputs, &[gw]);
        check_gradient(&op, &inputs, &[true, true]);
    });
}

#[test]
fn deconvolution_equals_its_formula() {
    in_both_layouts(|c, channel_last, laid| {
        let (x, w, b) = (sample(&c.y_shape(), 1), sample(&c.w_shape(), 2), sample(&[c.channels], 3));
        let n = c.batch.len();
        let left = |i: usize| {
            let steps = (c.output()[i] as i64 - 1) * c.stride[i];
            c.input[i] as i64 + 2 * c.pad[i] - c.reach(i) - steps
        };
        let padding = Some((0..c.input.len()).map(left).collect());
        let op = Op::new(Deconvolution::laid_out(&convolution(c, channel_last).layout(), padding));
        let (lx, lw) = (laid(&x, n), laid(&w, 1));
        check_forward(&op, &[lx.clone(), lw.clone()], &[laid(&c.deconvolution(&x, &w, None), n)]);
        check_forward(
            &op,
            &[lx.clone(), lw.clone(), b.clone()],
            &[laid(&c.deconvolution(&x, &w, Some(&b)), n)],
        );
        check_gradient(&op, &[lx.clone(), lw.clone()], &[true, true]);
        check_gradient(&op, &[lx, lw, b], &[true, true, true]);
    });
}

#[test]
fn depthwise_convolution_equals_its_formula() {
    for c in cases().into_iter().filter(|c| c.channels == c.group) {
        let (x, w, b) = (sample(&c.x_shape(), 1), sample(&c.w_shape(), 2), sample(&[c.maps], 3));
        let Convolution { base_axis, pad, stride, dilation, .. } = convolution(&c, false);
        let multiplier = (c.maps / c.channels) as i64;
        let op = Op::new(DepthwiseConvolution { base_axis, pad, stride, dilation, multiplier });
        let shape = Shape::from([&[c.maps], &c.kernel[..]].concat());
        let flat = Tensor { shape, data: w.data.clone() };
        check_forward(&op, &[x.clone(), flat.clone()], &[c.convolution(&x, &w, None)]);
        check_forward(&op, &[x.clone(), flat.clone(), b.clone()], &[c.convolution(&x, &w, Some(&b))]);
        check_gradient(&op, &[x, flat, b], &[true, true, true]);
    }
}

#[test]
fn convolution_in_several_blocks_equals_its_formula() {
    // 150 * 25 rows: the 320 positions do not fit into one block, and blocks do not end with a row of positions.
    let c = case(&[1], [150, 2, 1], &[24, 20], &[5, 5], [&[0, 0], &[1, 1], &[1, 1]]);
    let (x, w, gy) = (sample(&c.x_shape(), 1), sample(&c.w_shape(), 2), sample(&c.y_shape(), 3));
    let (y, gx, gw) = (c.convolution(&x, &w, None), c.deconvolution(&gy, &w, None), c.filter_grad(&gy, &x));
    for channel_last in [false, true] {
        let laid = |t: &Tensor| if channel_last { moved(t, 1, 3) } else { t.clone() };
        let convolution = convolution(&c, channel_last);
        let layout = convolution.layout();
        check_forward(&Op::new(convolution.clone()), &[laid(&x), laid(&w)], &[laid(&y)]);
        check_forward(&Op::new(Deconvolution::laid_out(&layout, None)), &[laid(&gy), laid(&w)], &[laid(&gx)]);
        let shape = laid(&w).shape.iter().map(|d| *d as i64).collect();
        check_forward(
            &Op::new(ConvolutionFilterGrad::laid_out(&layout, shape)),
            &[laid(&gy), laid(&x)],
            &[laid(&gw)],
        );
    }
}

/// Checks the message of the error for inputs of these shapes.
#[track_caller]
fn refused(op: impl Compute, shapes: &[&[usize]], message: &str) {
    let shapes: Vec<Shape> = shapes.iter().map(|s| Shape::from(*s)).collect();
    let error = Op::new(op).shapes(&shapes.iter().collect::<Vec<_>>()).expect_err("is refused");
    assert_eq!(error.to_string(), message);
}

#[test]
fn errors_say_what_was_expected_and_given() {
    let plain = || Convolution {
        base_axis: 1,
        pad: None,
        stride: None,
        dilation: None,
        group: 1,
        channel_last: false,
    };
    refused(
        plain(),
        &[&[2, 4, 5, 5], &[2, 4, 6, 3]],
        "convolution: expected an output of length one or more along spatial axis 0, where input is 5, kernel 6, \
         pad 0, stride 1, dilation 1, got shapes (2, 4, 5, 5), (2, 4, 6, 3)",
    );
    refused(
        plain(),
        &[&[2, 3, 5, 5], &[2, 4, 3, 3]],
        "convolution: expected 4 input channels (4 of the weight for each of 1 groups), got shapes (2, 3, 5, 5), \
         (2, 4, 3, 3)",
    );
    refused(
        Convolution { pad: Some(vec![1]), ..plain() },
        &[&[2, 4, 5, 5], &[2, 4, 3, 3]],
        "convolution: expected `pad` to be 2 numbers, 0 or more, for the spatial axes, got (1)",
    );
    refused(
        Convolution { stride: Some(vec![1, 0]), ..plain() },
        &[&[2, 4, 5, 5], &[2, 4, 3, 3]],
        "convolution: expected `stride` to be 2 numbers, 1 or more, for the spatial axes, got (1, 0)",
    );
    refused(
        Convolution { group: 0, ..plain() },
        &[&[2, 4, 5, 5], &[2, 4, 3, 3]],
        "convolution: expected `group` to be 1 or more, got 0",
    );
    refused(
        plain(),
        &[&[2, 4, 5, 5], &[2, 4, 3, 3], &[1, 2]],
        "convolution: expected a bias of shape (2,), got shapes (2, 4, 5, 5), (2, 4, 3, 3), (1, 2)",
    );
    refused(
        plain(),
        &[&[2, 4], &[2, 4]],
        "convolution: expected channels and at least one spatial axis from `base_axis` on, got shapes (2, 4), (2, 4)",
    );
    for (steps, least) in [(i64::MAX, 0), (i64::MIN, 0), (1 << 31, 0), (-1, 0)] {
        let steps = Some(vec![steps, least]);
        let huge = Convolution { pad: steps.clone(), stride: steps.clone(), dilation: steps, ..plain() };
        let shapes = [Shape::from([2, 4, 5, 5]), Shape::from([2, 4, 3, 3])];
        assert!(Op::new(huge).shapes(&shapes.iter().collect::<Vec<_>>()).is_err());
    }
}
