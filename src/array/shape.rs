//! Dimensions of an array. All arrays are contiguous in row-major order, so a shape describes the layout.

use std::fmt;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::{Error, Result};

/// Dimensions of an array, outermost first; `()` is a scalar of one element.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[usize; Self::FEW]>);

impl Clone for Shape {
    #[inline(always)]
    fn clone(&self) -> Self {
        match self.few() {
            Some(dims) => Self(SmallVec::from_buf_and_len(dims, self.0.len())),
            None => Self(SmallVec::from_slice(&self.0)),
        }
    }

    #[inline(always)]
    fn clone_from(&mut self, other: &Self) {
        if let (Some(dims), false) = (other.few(), self.0.spilled()) {
            self.0 = SmallVec::from_buf_and_len(dims, other.0.len());
            return;
        }
        self.0.clear();
        self.0.extend_from_slice(&other.0);
    }
}

impl Shape {
    /// The number of axes that are stored in the shape itself.
    const FEW: usize = 4;

    /// The dimensions padded with zeros, if there are few. Copied one by one, which takes less time than a call of
    /// `memcpy`.
    #[inline(always)]
    fn few(&self) -> Option<[usize; Self::FEW]> {
        let (own, mut dims) = (self.0.as_slice(), [0; Self::FEW]);
        if own.len() > Self::FEW {
            return None;
        }
        for i in 0..Self::FEW {
            if i < own.len() {
                dims[i] = own[i];
            }
        }
        Some(dims)
    }

    /// True if two shapes are equal. Inlined, since a call would take longer for so few numbers.
    #[inline(always)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }

    /// The shape of a scalar.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// Number of axes.
    pub fn ndim(&self) -> usize {
        self.0.len()
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of elements, checked.
    ///
    /// # Errors
    /// [`Error::Memory`] if the count exceeds half the address space. [`Error::Shape`] if an empty array would exceed
    /// it without its axes of length zero.
    #[inline]
    pub fn checked_size(&self) -> Result<usize> {
        let (mut size, mut full, mut fits) = (1_usize, 1_usize, true);
        for d in &*self.0 {
            let (n, over) = full.overflowing_mul((*d).max(1));
            (size, full, fits) = (size.wrapping_mul(*d), n, fits && !over);
        }
        match fits && full <= isize::MAX as usize / 8 {
            true => Ok(size),
            false if self.0.contains(&0) => {
                let expected = "axes of less than 2^60 elements together, those without any left out";
                Err(Error::shape("shape", expected, [self]))
            }
            false => Err(Error::Memory { bytes: usize::MAX }),
        }
    }

    /// Number of elements from `axis` on.
    pub fn size_from(&self, axis: usize) -> usize {
        self.0[axis.min(self.0.len())..].iter().product()
    }

    /// Number of elements before `axis`.
    pub fn size_to(&self, axis: usize) -> usize {
        self.0[..axis.min(self.0.len())].iter().product()
    }

    /// Distance in elements between neighbours along each axis.
    pub fn strides(&self) -> SmallVec<[usize; 4]> {
        let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, self.0.len());
        for axis in (1..self.0.len()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis];
        }
        strides
    }

    /// Resolves an axis. Negative axes count from the end.
    ///
    /// # Errors
    /// [`Error::Axis`] if there is no such axis.
    pub fn axis(&self, op: &str, axis: i64) -> Result<usize> {
        let n = self.0.len() as i64;
        match if axis < 0 { axis + n } else { axis } {
            found if (0..n).contains(&found) => Ok(found as usize),
            _ => Err(Error::Axis { op: op.into(), got: axis, ndim: self.0.len() }),
        }
    }

    /// Resolves several axes in the given order, or all axes for `None`.
    ///
    /// # Errors
    /// [`Error::Axis`] if there is no such axis, [`Error::Argument`] if one appears twice.
    pub fn axes(&self, op: &str, axes: Option<&[i64]>) -> Result<SmallVec<[usize; 4]>> {
        let Some(axes) = axes else { return Ok((0..self.0.len()).collect()) };
        let mut found: SmallVec<[usize; 4]> = SmallVec::new();
        for &axis in axes {
            let at = self.axis(op, axis)?;
            if found.contains(&at) {
                return Err(Error::argument(op, "axis", "different axes", format!("{axes:?}")));
            }
            found.push(at);
        }
        Ok(found)
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(SmallVec::from_slice(dims))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(SmallVec::from_slice(&dims))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(SmallVec::from_vec(dims))
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        Self(dims.into_iter().collect())
    }
}

/// Formats like a Python tuple: `()`, `(3,)`, `(2, 3)`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "({one},)"),
            many => {
                let dims: Vec<_> = many.iter().map(usize::to_string).collect();
                write!(f, "({})", dims.join(", "))
            }
        }
    }
}
