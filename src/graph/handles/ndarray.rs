//! Arrays outside of a graph, by reference.

use crate::Error;
use crate::Result;
use crate::array::Access;
use crate::array::DType;
use crate::array::Element;
use crate::array::Shape;
use crate::array::Storage;
use crate::array::View;
use std::sync::Arc;

/// A new array with the same elements in the same type.
///
/// # Errors
/// [`Error::Cleared`] when there is nothing to copy, [`Error::Memory`].
pub fn copied(array: &NdArray) -> Result<NdArray> {
    let n = array.shape.size();
    let storage = Storage::new(n);
    let dtype = array.storage.dtype().unwrap_or(DType::F32);
    storage.copy_from(&array.storage, dtype, n)?;
    Ok(NdArray { shape: array.shape.clone(), storage })
}

/// An array by reference: a shape over elements that others may share.
///
/// Its elements are as many as its shape says: nobody can make one that is not so.
///
/// ```compile_fail
/// use kinnor::array::{Shape, Storage};
/// use kinnor::graph::NdArray;
/// let array = NdArray { shape: Shape::from([1 << 20]), storage: Storage::new(1) };
/// ```
#[derive(Clone)]
pub struct NdArray {
    /// Its shape.
    pub(crate) shape: Shape,
    /// Its elements.
    pub(crate) storage: Arc<Storage>,
}

impl NdArray {
    /// An array that reads as zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] when no machine could hold it.
    pub fn new(shape: Shape) -> Result<Self> {
        let storage = Storage::new(shape.checked_size()?);
        Ok(Self { shape, storage })
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of its elements, once they have one.
    pub fn dtype(&self) -> Option<DType> {
        self.storage.dtype()
    }

    /// Makes its elements those of another type, each rounded to that.
    ///
    /// # Errors
    /// [`Error::Cleared`] when the engine cleared them, [`Error::Memory`].
    pub fn cast(&self, dtype: DType) -> Result<()> {
        self.storage.access(dtype, Access::ReadWrite).map(drop)
    }

    /// Makes all elements zero, when they are looked at.
    ///
    /// # Errors
    /// [`Error::Memory`] when it is a part of an array that has no memory yet, and there is none.
    pub fn zero(&self) -> Result<()> {
        self.storage.zero()
    }

    /// Gives its memory back: there is nothing to read until it is written.
    ///
    /// # Errors
    /// [`Error::Graph`] when it is a part of another array.
    pub fn clear(&self) -> Result<()> {
        self.storage.clear(false)
    }

    /// Whether its memory was given back and nothing was written since.
    pub fn is_cleared(&self) -> bool {
        self.storage.is_cleared()
    }

    /// Copies of its elements as `f64`.
    ///
    /// # Errors
    /// [`Error::Cleared`] when the engine cleared them.
    pub fn to_vec(&self) -> Result<Vec<f64>> {
        let (n, mut copies) = (self.shape.size(), Vec::new());
        copies
            .try_reserve_exact(n)
            .map_err(|_| Error::Memory { bytes: n.saturating_mul(size_of::<f64>()) })?;
        copies.extend_from_slice(&self.view::<f64>()?);
        Ok(copies)
    }

    /// Its elements as they are now. Whoever writes the array while the view lives writes to other memory.
    ///
    /// On threads this is as safe as any read: an array that another thread writes outside of a run must not be looked at.
    ///
    /// ```
    /// use kinnor::graph::NdArray;
    /// # fn main() -> kinnor::Result<()> {
    /// let array = NdArray::new([2, 2].into())?;
    /// array.copy_from_slice(&[1.0, 2.0, 3.0, 4.0])?;
    /// let before = array.view::<f32>()?;
    /// array.zero()?;
    /// assert_eq!(before[..], [1.0, 2.0, 3.0, 4.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Cleared`] when the engine cleared them, [`Error::Memory`].
    pub fn view<T: Element>(&self) -> Result<View<T>> {
        self.storage.view(&self.shape)
    }

    /// An array of the same elements in the same type.
    ///
    /// ```
    /// use kinnor::graph::NdArray;
    /// use ndarray::array;
    /// # fn main() -> kinnor::Result<()> {
    /// let x = NdArray::from_ndarray(&array![[1.0_f32, 2.0], [3.0, 4.0]].t())?;
    /// assert_eq!(x.view::<f32>()?.array(), array![[1.0, 3.0], [2.0, 4.0]].into_dyn());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Memory`].
    #[cfg(feature = "ndarray")]
    pub fn from_ndarray<T: Element, S, D>(values: &ndarray::ArrayBase<S, D>) -> Result<Self>
    where
        S: ndarray::Data<Elem = T>,
        D: ndarray::Dimension,
    {
        let array = Self::new(values.shape().into())?;
        array.cast(T::DTYPE)?;
        array.assign(values)?;
        Ok(array)
    }

    /// Overwrites its elements with those of an array of its shape, in the type that they have (`f32` at first).
    ///
    /// # Errors
    /// [`Error::Shape`] when the shape differs, [`Error::Memory`].
    #[cfg(feature = "ndarray")]
    pub fn assign<T: Element, S, D>(&self, values: &ndarray::ArrayBase<S, D>) -> Result<()>
    where
        S: ndarray::Data<Elem = T>,
        D: ndarray::Dimension,
    {
        if values.shape() != &self.shape[..] {
            return Err(Error::shape("assign", format!("{}", self.shape), [&Shape::from(values.shape())]));
        }
        match values.as_slice() {
            Some(values) => self.copy_from_slice(values),
            None => self.copy_from_slice(&values.iter().copied().collect::<Vec<_>>()),
        }
    }

    /// Overwrites its elements, in the type that they have (`f32` at first).
    ///
    /// # Errors
    /// [`Error::Shape`] when the count differs.
    pub fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<()> {
        if values.len() != self.shape.size() {
            let expected = format!("{} values", self.shape.size());
            return Err(Error::shape("copy_from_slice", expected, [&Shape::from([values.len()])]));
        }
        self.storage.copy_from_slice(values)
    }
}

/// The same elements under the same shape.
impl PartialEq for NdArray {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage) && self.shape == other.shape
    }
}
