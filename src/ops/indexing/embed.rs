//! `embed`: lookup of table rows by index.

use crate::array::Shape;
use crate::kernels::row_copies::Rows;
use crate::kernels::scratch::List;
use crate::kernels::{Float, Movable};
use crate::ops::{
    Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, arrangement::array, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Embed>()];

op! {
    /// Lookup of table rows: `y[i, ...] = w[x0[i], ...]`. The usual first layer for words.
    ///
    /// Args:
    ///     x0: Indices of rows, whole numbers from 0 on, of any shape.
    ///     w: The table, shape (rows, features...).
    ///
    /// Returns:
    ///     Array of the shape of `x0` followed by the features.
    ///
    /// Raises:
    ///     ShapeError: If `w` has no axis.
    ///     IndexError: If an index is not a whole number, negative or not less than the number of rows.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> indices = nn.NdArray.from_numpy_array([2, 0])
    ///     >>> table = nn.NdArray.from_numpy_array([[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]])
    ///     >>> F.embed(indices, table).data
    ///     array([[2. , 2.1],
    ///            [0. , 0.1]], dtype=float32)
    /// ```
    Embed = embed(x0: index, w)
}

/// The row numbers that the indices select. An error names an index that does not exist.
fn rows(index: &[i64], shape: &Shape, table: &Shape) -> Result<List<usize>> {
    let row = |(at, i): (usize, &i64)| match usize::try_from(*i) {
        Ok(row) if row < table[0] => Ok(row),
        _ => {
            let (mut rest, mut place) = (at, shape.clone());
            for axis in (0..shape.ndim()).rev() {
                place[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            Err(Error::Index(format!(
                "embed: expected indices from 0 to {} for a table w of shape {table}, got {i} at x0[{}]",
                table[0] as i64 - 1,
                place.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
            )))
        }
    };
    List::of(index.iter().enumerate().map(row))
}

/// Adds row `i` of `gy` to row `rows[i]` of `gw`.
fn add_rows<T: Float>(rows: &[usize], gy: &[T], gw: &mut [T], n: usize) {
    Rows { n, count: rows.len(), from: |i| i * n, to: |i| rows[i] * n }.put_in_order(gy, gw, true);
}

/// Writes row `rows[i]` of `w` to row `i` of `y`, or adds it.
fn take_rows<T: Movable>(rows: &[usize], w: &[T], y: &mut [T], n: usize, accumulate: bool) {
    Rows { n, count: rows.len(), from: |i| rows[i] * n, to: |i| i * n }.put(w, y, accumulate);
}

impl Compute for Embed {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (index, w) = (x.get(0), x.get(1));
        if w.ndim() == 0 {
            return Err(Error::shape("embed", "a table of shape (rows, features...)", [index, w]));
        }
        one(index.iter().chain(&w[1..]).copied().collect::<Shape>())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let table = run.x_shape(1);
        let rows = rows(run.index(0), run.x_shape(0), table)?;
        take_rows(&rows, run.x(1), run.y(0), table.size_from(1), false);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let Some(gw) = run.gx(1) else { return Ok(()) };
        let table = run.x_shape(1);
        let rows = rows(run.index(0), run.x_shape(0), table)?;
        add_rows(&rows, run.gy(0), gw.adding(), table.size_from(1));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(1).shape().iter().map(|d| *d as i64).collect();
        let of_table = || Sym::apply(EmbedFilterGrad { shape }, &[s.gy(0), s.x(0)]);
        vec![None, s.wants(1).then(of_table)]
    }

    fn moves(&self, i: usize) -> bool {
        i == 1
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b01)
    }
}

op! {
    /// The gradient of `embed` by its table: each row of `gy` is added to the row that its index names.
    ///
    /// Args:
    ///     gy: Gradient of the output of `embed`.
    ///     x0: Indices, as given to `embed`.
    ///     shape: Shape of the table.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     IndexError: If an index is not a whole number, negative or not less than the number of rows.
    EmbedFilterGrad = embed_filter_grad(gy, x0: index; shape: Vec<i64>)
}

impl Compute for EmbedFilterGrad {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(array::lengths("embed_filter_grad", &self.shape)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let table = run.y_shape(0);
        let rows = rows(run.index(1), run.x_shape(1), table)?;
        let gw = run.y(0);
        gw.fill(T::ZERO);
        add_rows(&rows, run.x(0), gw, table.size_from(1));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let Some(g) = run.gx(0) else { return Ok(()) };
        let (table, features) = (run.gy(0), run.y_shape(0).size_from(1));
        let rows = rows(run.index(1), run.x_shape(1), run.y_shape(0))?;
        take_rows(&rows, table, g.data, features, g.accumulate);
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![s.wants(0).then(|| Sym::apply(Embed {}, &[s.x(1), s.gy(0)])), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b10)
    }
}

#[cfg(test)]
mod tests {
    use super::{Embed, EmbedFilterGrad};
    use crate::ops::testing::{Tensor, check_forward, check_gradient, forward};
    use crate::ops::{Op, State};

    #[test]
    fn rows_are_chosen_and_their_gradients_added() {
        let (index, w) = (Tensor::new([2, 2], &[0.0, 1.0, 2.0, 0.0]), Tensor::sample([3, 2, 2], 1));
        let rows: Vec<f64> = [0, 1, 2, 0].iter().flat_map(|r| w.data[r * 4..][..4].to_vec()).collect();
        check_forward(&Op::new(Embed {}), &[index.clone(), w.clone()], &[Tensor::new([2, 2, 2, 2], &rows)]);
        check_gradient(&Op::new(Embed {}), &[index.clone(), w], &[false, true]);
        let gy = Tensor::sample([2, 2, 2, 2], 2);
        check_gradient(&Op::new(EmbedFilterGrad { shape: vec![3, 2, 2] }), &[gy, index], &[true, false]);
    }

    #[test]
    fn embed_accepts_scalar_rows_and_empty_tables() {
        let scalar = Tensor::new([], &[1.0]);
        check_forward(
            &Op::new(Embed {}),
            &[scalar, Tensor::new([2], &[3.0, 4.0])],
            &[Tensor::new([], &[4.0])],
        );
        let none = Tensor::new([0], &[]);
        check_gradient(&Op::new(Embed {}), &[none, Tensor::sample([0, 2], 1)], &[false, true]);
        let two = Tensor::new([2], &[0.0, 1.0]);
        check_gradient(&Op::new(Embed {}), &[two, Tensor::sample([2, 0], 1)], &[false, true]);
    }

    #[test]
    fn an_index_out_of_range_is_named_with_its_place_and_table() {
        for (index, message) in [
            (3.0, "embed: expected indices from 0 to 2 for a table w of shape (3, 2), got 3 at x0[1, 0]"),
            (-1.0, "embed: expected indices from 0 to 2 for a table w of shape (3, 2), got -1 at x0[1, 0]"),
        ] {
            let x = [Tensor::new([2, 1], &[0.0, index]), Tensor::sample([3, 2], 1)];
            let error =
                forward(&Op::new(Embed {}), &x, &mut State::default(), false).expect_err("is refused");
            assert_eq!(error.to_string(), message);
        }
    }
}
