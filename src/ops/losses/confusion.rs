//! `confusion_matrix`: counts of predicted classes for each true class.

use crate::Result;
use crate::array::DType;
use crate::kernels::Float;
use crate::ops::losses::classification::{class, labels};
use crate::ops::reductions::softmax::along;
use crate::ops::{Compares, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ConfusionMatrix>()];

op! {
    /// Confusion matrix: `y[i, j]` is the number of samples of class `i` with the highest score at class `j`. Of equal
    /// scores, the first counts. Its gradient is zero.
    ///
    /// Args:
    ///     x: Scores of the classes along `axis`.
    ///     target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
    ///         negative label is ignored.
    ///     axis: Axis of the classes, the last one by default.
    ///
    /// Returns:
    ///     Whole numbers, shape (classes, classes), summed over all samples.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If the shapes of `target` and `x` do not fit together.
    ///     IndexError: If a label is not a whole number or not less than the number of classes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> scores = nn.NdArray.from_numpy_array([[5.0, 3.0], [5.0, 3.0], [1.0, 2.0]])
    ///     >>> labels = nn.NdArray.from_numpy_array([[0], [1], [1]])
    ///     >>> F.confusion_matrix(scores, labels).data
    ///     array([[1, 0],
    ///            [1, 1]])
    /// ```
    ConfusionMatrix = confusion_matrix(x, target: index; axis: Option<i64> = None)
}

impl Compute for ConfusionMatrix {
    const COMPARES: Compares = Compares::One(0);

    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        labels("confusion_matrix", x.get(0), x.get(1), self.axis)?;
        let (_, lines) = along("confusion_matrix", x.get(0), self.axis)?;
        one([lines.n, lines.n])
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (_, lines) = along("confusion_matrix", run.x_shape(0), self.axis)?;
        let (x, target, y) = (run.x(0), run.index(1), run.y_index(0));
        y.fill(0);
        for (line, label) in target.iter().enumerate() {
            if let Some(class) = class("confusion_matrix", *label, lines.n)? {
                let score = |k: usize| x[lines.at(line, k)];
                let highest = (1..lines.n).fold(0, |best, k| if score(k) > score(best) { k } else { best });
                y[class * lines.n + highest] += 1;
            }
        }
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None, None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }
}
