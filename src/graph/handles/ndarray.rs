//! Arrays outside a graph, by reference.

use crate::Error;
use crate::Result;
use crate::array::Access;
use crate::array::DType;
use crate::array::Element;
use crate::array::Shape;
use crate::array::Storage;
use crate::array::View;
use std::sync::Arc;

/// A new array with the same elements and type.
///
/// # Errors
/// [`Error::Cleared`] if there is no data to copy, [`Error::Memory`].
pub fn copied(array: &NdArray) -> Result<NdArray> {
    let n = array.shape.size();
    let storage = Storage::new(n);
    let dtype = array.storage.dtype().unwrap_or(DType::F32);
    storage.copy_from(&array.storage, dtype, n)?;
    Ok(NdArray { shape: array.shape.clone(), storage })
}

/// An array by reference: a shape and elements that other arrays may share.
///
/// The number of elements always matches the shape, and the fields are private to ensure that.
///
/// ```compile_fail
/// use kinnor::array::{Shape, Storage};
/// use kinnor::graph::NdArray;
/// let array = NdArray { shape: Shape::from([1 << 20]), storage: Storage::new(1) };
/// ```
#[derive(Clone)]
pub struct NdArray {
    /// The shape.
    pub(crate) shape: Shape,
    /// The elements.
    pub(crate) storage: Arc<Storage>,
}

impl NdArray {
    /// An array that reads as zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] if its size exceeds the address space.
    pub fn new(shape: Shape) -> Result<Self> {
        let storage = Storage::new(shape.checked_size()?);
        Ok(Self { shape, storage })
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of its elements, once they have one.
    pub fn dtype(&self) -> Option<DType> {
        self.storage.dtype()
    }

    /// Converts its elements to another type, with rounding.
    ///
    /// # Errors
    /// [`Error::Cleared`] if the engine cleared them, [`Error::Memory`].
    pub fn cast(&self, dtype: DType) -> Result<()> {
        self.storage.access(dtype, Access::ReadWrite).map(drop)
    }

    /// Sets all elements to zero, lazily.
    ///
    /// # Errors
    /// [`Error::Memory`] if it is a slice of an array without memory, and the allocation fails.
    pub fn zero(&self) -> Result<()> {
        self.storage.zero()
    }

    /// Frees its memory. The array must be written before it is read again.
    ///
    /// # Errors
    /// [`Error::Graph`] if it is a slice of another array.
    pub fn clear(&self) -> Result<()> {
        self.storage.clear(false)
    }

    /// True if its memory was freed and nothing was written since.
    pub fn is_cleared(&self) -> bool {
        self.storage.is_cleared()
    }

    /// Copies its elements as `f64`.
    ///
    /// # Errors
    /// [`Error::Cleared`] if the engine cleared them.
    pub fn to_vec(&self) -> Result<Vec<f64>> {
        let (n, mut copies) = (self.shape.size(), Vec::new());
        copies
            .try_reserve_exact(n)
            .map_err(|_| Error::Memory { bytes: n.saturating_mul(size_of::<f64>()) })?;
        copies.extend_from_slice(&self.view::<f64>()?);
        Ok(copies)
    }

    /// A snapshot of its elements. A write to the array during the lifetime of the view goes to other memory.
    ///
    /// As for any read, do not create a view of an array while another thread writes it outside of
    /// a run.
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
    /// [`Error::Cleared`] if the engine cleared them, [`Error::Memory`].
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

    /// Overwrites its elements with the elements of an array of the same shape. Keeps its type, `f32` by default.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shape differs, [`Error::Memory`].
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

    /// Overwrites its elements. Keeps its type, `f32` by default.
    ///
    /// # Errors
    /// [`Error::Shape`] if the count differs.
    pub fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<()> {
        if values.len() != self.shape.size() {
            let expected = format!("{} values", self.shape.size());
            return Err(Error::shape("copy_from_slice", expected, [&Shape::from([values.len()])]));
        }
        self.storage.copy_from_slice(values)
    }
}

/// Equal if both have the same storage and shape.
impl PartialEq for NdArray {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage) && self.shape == other.shape
    }
}
