//! `random_erase`: random patches over images.

use crate::array::Shape;
use crate::kernels::random::{BLOCK, PhiloxKey};
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::{Float, Number};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::contract::facts::ALL_INTEGERS;
use crate::ops::randomness::distributions::rounded_up_from;
use crate::ops::randomness::generator_state::Drawing;
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Erasing>()];

op! {
    /// Random erasing: covers images with random patches, as augmentation for training.
    ///
    /// Args:
    ///     x: Images, shape (n, channels, height, width), or (n, height, width, channels) if `channel_last`.
    ///     prob: Probability of each patch, from 0 to 1.
    ///     area_ratios: Least and greatest share of the image that a patch covers.
    ///     aspect_ratios: Least and greatest height of a patch relative to its width.
    ///     replacements: Range that the values of patches are drawn from.
    ///     n: Number of patches of an image.
    ///     share: Use the same patches for all channels of an image.
    ///     inplace: Ignored; exists for NNabla programs.
    ///     base_axis: Axis of the channels. The axes before it are the batch.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///     channel_last: The channels are the last axis.
    ///     ste_fine_grained: No gradient flows through patches; if off, it flows as if there were none.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If `x` does not have three axes from `base_axis` on.
    ///     ArgumentError: If a range is not a pair, a ratio or `prob` is out of range, or `n` is negative or above
    ///         65536.
    ///
    /// Source:
    ///     Zhong et al., "Random erasing data augmentation", 2017.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray((8, 3, 32, 32))
    ///     >>> x.zero()
    ///     >>> y = F.random_erase(x, prob=1.0, replacements=(1.0, 2.0)).data
    ///     >>> y.any(axis=(1, 2, 3)).tolist() == [True] * 8  # each image has a patch
    ///     True
    /// ```
    RandomErase = random_erase(x; prob: f64 = 0.5, area_ratios: Vec<f64> = vec![0.02, 0.4],
        aspect_ratios: Vec<f64> = vec![0.3, 3.3333], replacements: Vec<f64> = vec![0.0, 255.0], n: i64 = 1,
        share: bool = true, inplace: bool = false, base_axis: i64 = 1, seed: i64 = -1, channel_last: bool = false,
        ste_fine_grained: bool = true)
}

/// [`RandomErase`] with the random numbers of its last run.
type Erasing = Drawing<RandomErase>;

/// Ones where the last run of an [`Erasing`] left its input unchanged, zeros elsewhere.
#[derive(Clone)]
struct EraseMask(Erasing);
only_in_gradients! {
    EraseMask = "erase_mask", " Ones where a random erasing left its input unchanged.";
}

/// Random numbers for one patch: presence, area, aspect, row, column.
const DRAWS: usize = 5;

/// The most patches of an image: all random numbers for them are drawn together.
const MOST_PATCHES: i64 = 1 << 16;

/// Checks a pair of numbers in ascending order.
fn pair(name: &str, values: &[f64], least: f64) -> Result<(f64, f64)> {
    match values {
        [low, high] if least <= *low && low <= high => Ok((*low, *high)),
        _ => Err(Error::argument(
            "random_erase",
            name,
            "two ascending numbers in range",
            format!("{values:?}"),
        )),
    }
}

/// The sizes of a batch of images.
struct ErasedImages {
    /// The number of images.
    count: usize,
    /// The number of channels of an image.
    channels: usize,
    /// The number of rows.
    height: usize,
    /// The number of columns.
    width: usize,
}

impl Erasing {
    /// Number and sizes of the images, after checks.
    fn images(&self, x: &Shape) -> Result<ErasedImages> {
        let base = x.axis("random_erase", self.of.base_axis)?;
        if x.ndim() != base + 3 {
            return Err(Error::shape("random_erase", format!("three axes from {base} on"), [x]));
        }
        let [c, h, w] = if self.of.channel_last { [2, 0, 1] } else { [0, 1, 2] };
        let count = x.iter().take(base).product();
        Ok(ErasedImages { count, channels: x[base + c], height: x[base + h], width: x[base + w] })
    }

    /// Number of random numbers to place the patches of all images or channels.
    fn placing(&self, images: &ErasedImages) -> usize {
        let groups = images.count * if self.of.share { 1 } else { images.channels };
        groups * self.of.n as usize * DRAWS
    }

    /// For each element, true if a patch covers it.
    fn erased(&self, key: PhiloxKey, images: &ErasedImages) -> Result<List<bool>> {
        let ErasedImages { count, channels, height, width } = *images;
        let area = pair("area_ratios", &self.of.area_ratios, 0.0)?;
        let aspect = pair("aspect_ratios", &self.of.aspect_ratios, f64::MIN_POSITIVE)?;
        let mut drawn = Zeros::<f64>::new(self.placing(images));
        key.uniform(0.0, 1.0, &mut drawn);
        let mut erased = List::repeat(false, count * channels * height * width);
        let groups = if self.of.share { 1 } else { channels };
        for (p, draw) in drawn.chunks_exact(DRAWS).enumerate().filter(|(_, draw)| draw[0] < self.of.prob) {
            let group = p / self.of.n as usize;
            let (image, only) = (group / groups, group % groups);
            let covered = (area.0 + (area.1 - area.0) * draw[1]) * (height * width) as f64;
            let ratio = aspect.0 + (aspect.1 - aspect.0) * draw[2];
            let h = ((covered * ratio).sqrt() as usize).min(height);
            let w = ((covered / ratio).sqrt() as usize).min(width);
            let top = ((height - h + 1) as f64 * draw[3]) as usize;
            let left = ((width - w + 1) as f64 * draw[4]) as usize;
            let chosen = if self.of.share { 0..channels } else { only..only + 1 };
            for (c, row) in chosen.flat_map(|c| (top..top + h).map(move |row| (c, row))) {
                for column in left..left + w {
                    let at = match self.of.channel_last {
                        true => ((image * height + row) * width + column) * channels + c,
                        false => ((image * channels + c) * height + row) * width + column,
                    };
                    erased[at] = true;
                }
            }
        }
        Ok(erased)
    }
}

impl Compute for Erasing {
    fn moves(&self, _: usize) -> bool {
        true
    }

    // Erased elements are random numbers.
    fn makes_reals(&self) -> Option<[i64; 2]> {
        Some(ALL_INTEGERS)
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.images(x.get(0))?;
        pair("area_ratios", &self.of.area_ratios, 0.0)?;
        pair("aspect_ratios", &self.of.aspect_ratios, f64::MIN_POSITIVE)?;
        pair("replacements", &self.of.replacements, f64::MIN)?;
        if !(0.0..=1.0).contains(&self.of.prob) {
            return Err(Error::argument("random_erase", "prob", "from 0 to 1", self.of.prob));
        }
        if !(0..=MOST_PATCHES).contains(&self.of.n) {
            let expected = format!("from 0 to {MOST_PATCHES}");
            return Err(Error::argument("random_erase", "n", expected, self.of.n));
        }
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let images = self.images(run.x_shape(0))?;
        let (x, y) = (run.x(0), run.y(0));
        let placing = self.placing(&images).next_multiple_of(BLOCK as usize);
        let key = self.draw(run, self.of.seed, placing + x.len());
        let (low, high) = pair("replacements", &self.of.replacements, f64::MIN)?;
        let limit = rounded_up_from(high, run.narrow());
        PhiloxKey { offset: key.offset + placing as u64, ..key }.uniform_below(low, high, limit, y);
        for ((y, x), erased) in y.iter_mut().zip(x).zip(&*self.erased(key, &images)?) {
            *y = if *erased { *y } else { *x };
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let key = self.drawn(run)?;
        let gy = run.gy(0);
        let erased = match self.of.ste_fine_grained {
            true => self.erased(key, &self.images(run.x_shape(0))?)?,
            false => List::repeat(false, gy.len()),
        };
        if let Some(Grad { data, accumulate }) = run.gx(0) {
            for ((to, g), erased) in data.iter_mut().zip(gy).zip(&*erased) {
                let g = if *erased { T::ZERO } else { *g };
                *to = if accumulate { *to + g } else { g };
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(match self.of.ste_fine_grained {
            true => {
                let kept = Sym::apply(EraseMask(self.clone()), &[s.y(0)]);
                Sym::select(kept, s.gy(0), Sym::Const(0.0))
            }
            false => s.gy(0),
        })]
    }

    // `backward` draws the random numbers of `forward` again.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    // The output only orders the rule after `forward`, which saves the random numbers.
    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::OUTPUTS
    }

    const IS_RANDOM: bool = true;
}

impl Compute for EraseMask {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let erased = self.0.erased(self.0.last()?, &self.0.images(run.x_shape(0))?)?;
        for (y, erased) in run.y(0).iter_mut().zip(&*erased) {
            *y = if *erased { T::ZERO } else { T::of(1.0) };
        }
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Declared;
    use crate::ops::testing::{Tensor, forward};
    use crate::ops::{Op, State};

    /// An operation that fills patches with 9, at this probability.
    fn erase(prob: f64, share: bool) -> Op {
        let mut op =
            Erasing::bind(&Erasing::SPEC.args.iter().filter_map(|a| Some(a.default?())).collect::<Vec<_>>())
                .expect("defaults fit");
        (op.of.prob, op.of.share, op.of.seed, op.of.replacements) = (prob, share, 7, vec![9.0, 9.0]);
        Op::new(op)
    }

    #[test]
    fn channels_share_erased_patches_within_the_area_limit() {
        let x = Tensor::sample([3, 2, 16, 16], 1);
        let y =
            forward(&erase(1.0, true), std::slice::from_ref(&x), &mut State::default(), false).expect("runs");
        for image in y[0].data.chunks(2 * 256) {
            let under = |channel: &[f64]| channel.iter().map(|v| *v == 9.0).collect::<Vec<_>>();
            assert_eq!(under(&image[..256]), under(&image[256..]), "channels share patches");
            let n = image[..256].iter().filter(|v| **v == 9.0).count();
            assert!((1..=110).contains(&n), "{n} elements of 256");
        }
        let none = forward(&erase(0.0, false), std::slice::from_ref(&x), &mut State::default(), false);
        assert_eq!(none.expect("runs")[0].data, x.data);
    }

    #[test]
    fn a_recomputation_repeats_its_patches() {
        let (op, x, mut state) = (erase(1.0, false), Tensor::sample([2, 3, 8, 8], 2), State::default());
        let first = forward(&op, std::slice::from_ref(&x), &mut state, false).expect("runs");
        let again = forward(&op, std::slice::from_ref(&x), &mut state, true).expect("runs");
        assert_eq!(first[0].data, again[0].data);
    }
}
