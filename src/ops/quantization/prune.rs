//! `prune`: sets the smallest numbers of an array to zero.

use crate::kernels::Float;
use crate::kernels::map;
use crate::kernels::scratch::List;
use crate::ops::{
    Backward, Compares, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Prune>()];

op! {
    /// Sets the smallest numbers of an array to zero. The threshold is number `floor((size - 1) * rate)` of the
    /// absolute values in ascending order. The gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     rate: Share of the numbers that become zero, from 0 to 1; at 1 all of them.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `rate` is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.1, -3.0, 0.2, 2.0, -0.5])
    ///     >>> F.prune(x, rate=0.5).data
    ///     array([ 0. , -3. ,  0. ,  2. , -0.5], dtype=float32)
    /// ```
    Prune = prune(x; rate: f64 = 0.9)
}

impl Compute for Prune {
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if !(0.0..=1.0).contains(&self.rate) {
            return Err(Error::argument("prune", "rate", "from 0 to 1", self.rate));
        }
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y) = (run.x(0), run.y(0));
        if self.rate >= 1.0 || x.is_empty() {
            y.fill(T::ZERO);
            return Ok(());
        }
        let at = ((x.len() - 1) as f64 * self.rate) as usize;
        let mut sizes: List<T> = x.iter().map(|v| v.abs()).collect();
        // NaN counts as the largest number and stays.
        let by_size = |a: &T, b: &T| a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        let threshold = *sizes.select_nth_unstable_by(at, by_size).1;
        map::put_of(
            y,
            false,
            [x],
            #[inline(always)]
            move |[v]| if v.abs() < threshold { T::ZERO } else { v },
        );
        Ok(())
    }

    /// Straight-through: pruned elements get the gradient of the output, too.
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0) {
            gx.put_all(gy);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
