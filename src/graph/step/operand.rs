//! Operands of a step: an array of the arena and the address of its elements for a kernel.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::array::{Access, Buffer, DType, Odd, Shape, Storage, exact_below, pin_for_step};
use crate::graph::arena::Ix;
use crate::graph::arena::provenance::Provenance;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings;
use crate::graph::settings::context::Precision;
use crate::graph::step::tiles::TiledArray;
use crate::kernels::sixteen_bits;
use crate::ops::{Kind, Op};
use crate::{Error, Result};

/// An array that a kernel works on. Its storage is always large enough for its shape, even if the graph has changed.
/// Kernels rely on that.
pub(crate) struct Operand {
    /// The tensor in the arena that it belongs to, if any.
    pub(crate) tensor: Ix,
    /// The elements.
    pub(crate) storage: Arc<Storage>,
    /// The shape that the function was set up with.
    pub(crate) shape: Shape,
    /// The type in which the kernel works.
    pub(crate) dtype: DType,
    /// The type in which the elements are stored.
    pub(crate) stored: DType,
    /// True if a function computes it. Reading cleared data is then an error, regardless of who cleared it.
    pub(crate) is_computed: bool,
    /// True if the run counts the buffers it uses, so that other threads need not wait to free them.
    pub(crate) counted: bool,
    /// The fingerprint of the last values that were found to be whole numbers, if they have one.
    whole: AtomicU64,
}

impl Operand {
    /// An array of a tensor, for a kernel that computes in `dtype`, whose elements are stored as `stored`.
    pub(crate) fn new(tensor: Ix, array: NdArray, dtype: DType, stored: DType) -> Self {
        let NdArray { shape, storage } = array;
        assert!(storage.len() >= shape.size(), "an array has memory for its shape");
        let (is_computed, counted, whole) = (false, false, AtomicU64::new(0));
        Self { tensor, storage, shape, dtype, stored, is_computed, counted, whole }
    }

    /// Input `i` of an operation.
    pub(crate) fn input(op: &Op, i: usize, compute: Precision, tensor: Ix, array: NdArray) -> Self {
        let dtype = read_as(op, i, compute);
        Self::new(tensor, array, dtype, dtype)
    }

    /// Output `o` of an operation.
    pub(crate) fn output(op: &Op, o: usize, compute: Precision, tensor: Ix, array: NdArray) -> Self {
        let own = op.output(o);
        Self::new(tensor, array, own.unwrap_or(compute.dtype()), own.unwrap_or(compute.stored()))
    }

    /// Switches to another storage. Returns false if it is the same one.
    pub(crate) fn move_to(&mut self, storage: &Arc<Storage>) -> bool {
        let moves = !Arc::ptr_eq(&self.storage, storage);
        if moves {
            assert!(storage.len() >= self.shape.size(), "an array has memory for its shape");
            self.storage = Arc::clone(storage);
        }
        moves
    }

    /// The address of the elements, for `access` in the kernel's type.
    #[inline(always)]
    pub(crate) fn resolve(&self, access: Access) -> Result<*mut u8> {
        match self.storage.at(self.dtype, access).filter(|_| !self.counted) {
            Some(ptr) => Ok(ptr),
            None => self.make_ready(access),
        }
    }

    /// As [`Operand::resolve`], for access in a type that need not be the kernel's.
    fn resolve_as(&self, dtype: DType, access: Access) -> Result<*mut u8> {
        match self.storage.at(dtype, access).filter(|_| !self.counted) {
            Some(ptr) => Ok(ptr),
            None if self.counted => hold_at(&self.storage, dtype, access),
            None => self.storage.access(dtype, access),
        }
    }

    /// The address of elements for a kernel that accesses them in bfloat16, if they are stored so.
    pub(crate) fn in_bfloat16(&self, access: Access) -> Result<Option<*mut u8>> {
        match self.is_in(DType::BF16, access) {
            true => self.resolve_as(DType::BF16, access).map(Some),
            false => Ok(None),
        }
    }

    /// True if the kernel computes in `f32`, and elements for this access are stored in `narrow`, a type of 16 bits.
    fn is_in(&self, narrow: DType, access: Access) -> bool {
        let fits = match access {
            Access::Write => self.stored == narrow,
            _ => self.storage.dtype() == Some(narrow) && self.storage.is_ready(),
        };
        fits && self.dtype == DType::F32
    }

    /// True if a kernel that moves bits of the type `narrow` can have these elements: they are stored in it, or are not
    /// real numbers.
    pub(crate) fn has_bits(&self, narrow: DType, access: Access) -> bool {
        !self.dtype.is_float() || self.is_in(narrow, access)
    }

    /// The address of elements with [`Operand::has_bits`].
    pub(crate) fn resolve_bits(&self, narrow: DType, access: Access) -> Result<*mut u8> {
        if self.dtype.is_float() { self.resolve_as(narrow, access) } else { self.resolve(access) }
    }

    /// Gives an array without a type zeros of `f64`, if that is the type of the kernel. User code would otherwise see
    /// `f32`.
    pub(crate) fn make_double(&self) -> Result<()> {
        if self.dtype == DType::F64 && self.storage.dtype().is_none() {
            self.storage.zero()?;
            self.storage.access(DType::F64, Access::ReadWrite)?;
        }
        Ok(())
    }

    /// As [`Operand::read`]. Elements of 16 bits are widened into a buffer of this run.
    pub(crate) fn read_widened(&self, op: &Op, i: usize, held: &mut RunBuffers) -> Result<*mut u8> {
        if op.facts().cached_input == Some(i) {
            return self.read(op, i); // data derived from it is cached by its address
        }
        self.resolve_widened(held)?.map_or_else(|| self.read(op, i), Ok)
    }

    /// The elements for a kernel that converts tile by tile. `access` is not a write to part of the elements.
    pub(crate) fn tiled(&self, access: Access) -> Result<TiledArray> {
        let own = match access {
            Access::Write => Some(self.stored),
            _ => self.storage.dtype().filter(|_| self.storage.is_ready()),
        };
        let dtype = own.filter(|own| is_narrow(*own) && self.dtype == DType::F32).unwrap_or(self.dtype);
        if dtype == self.dtype && access == Access::ReadWrite && self.stored != self.dtype {
            return Ok(TiledArray { at: self.resolve_as(self.stored, access)?, dtype: self.stored });
        }
        let at = if dtype == self.dtype { self.resolve(access)? } else { self.resolve_as(dtype, access)? };
        Ok(TiledArray { at, dtype })
    }

    /// The elements widened into a buffer of this run, if they are of 16 bits and the kernel reads `f32`.
    pub(crate) fn resolve_widened(&self, held: &mut RunBuffers) -> Result<Option<*mut u8>> {
        let stored = self.storage.dtype().filter(|dtype| is_narrow(*dtype));
        let Some(stored) = stored.filter(|_| self.dtype == DType::F32 && self.storage.is_ready()) else {
            return Ok(None);
        };
        let _held = self.counted.then(|| self.resolve_as(stored, Access::Read)).transpose()?;
        let (own, from) = self.storage.pin(stored, Access::Read)?;
        let n = self.shape.size();
        let buffer = Buffer::new(n * DType::F32.size())?;
        sixteen_bits::widen_into(&own, from, stored, &buffer, n);
        let at = buffer.ptr();
        held.push(buffer);
        Ok(Some(at))
    }

    /// Returns the elements, brought into memory for this access. Fails if a computed value was cleared.
    #[cold]
    fn make_ready(&self, access: Access) -> Result<*mut u8> {
        if self.is_computed && access != Access::Write && self.storage.is_cleared() {
            return Err(Error::Cleared("array: expected values to read, got memory that was cleared".into()));
        }
        match self.counted {
            true => hold_at(&self.storage, self.dtype, access),
            false => self.storage.access(self.dtype, access),
        }
    }

    /// The address for reading the elements as input `i` of an operation. Indices must be whole numbers, except in
    /// NNabla's dialect, where fractions are rounded towards zero.
    #[inline(always)]
    pub(crate) fn read(&self, op: &Op, i: usize) -> Result<*mut u8> {
        let ptr = self.resolve(Access::Read)?;
        if matches!(self.dtype, DType::I64 | DType::U8 | DType::I8) {
            self.check_whole(op, i, ptr)?;
        }
        Ok(ptr)
    }

    /// Returns an error if indices at `ptr` are stored as real numbers and are not whole. Also if levels are stored as
    /// another type and are invalid. Values with the same fingerprint are checked once.
    #[cold]
    fn check_whole(&self, op: &Op, i: usize, ptr: *mut u8) -> Result<()> {
        let is_safe = |dtype: DType| dtype == self.dtype || self.dtype == DType::I64 && !dtype.is_float();
        if self.storage.dtype().is_none_or(is_safe) {
            return Ok(());
        }
        let fingerprint = self.storage.cacheable_fingerprint(ptr.addr()); // before the check
        if fingerprint.is_some() && fingerprint.number() == self.whole.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (what, numbers) = match self.dtype {
            DType::U8 => (Odd::NotUint8, "whole numbers from 0 to 255"),
            DType::I8 => (Odd::NotInt8, "whole numbers from -128 to 127"),
            _ if settings::is_nnabla() => (Odd::NotExactOnceTruncated, "whole numbers"),
            _ => (Odd::NotExact, "whole numbers"),
        };
        let Some((at, value)) = self.storage.first_odd(what)? else {
            self.whole.store(fingerprint.number(), Ordering::Relaxed);
            return Ok(());
        };
        let strides = self.shape.strides();
        let place: Shape = strides.iter().zip(&*self.shape).map(|(step, n)| at / step % n).collect();
        let (name, input) = (op.name(), op.input_name(i));
        let kept = self.storage.dtype().unwrap_or(self.stored);
        if self.dtype == DType::I64 && value.is_finite() && value.abs() >= exact_below(kept) {
            let limit = exact_below(kept);
            return Err(Error::Index(format!(
                "{name}: expected integers in {input}, got {value} at {place}, which {kept} may have rounded, as it \
                 does from {limit} on: pass an array of integers, and move it only by functions that do not compute \
                 with it"
            )));
        }
        Err(Error::Index(format!("{name}: expected {numbers} in {input}, got {value} at {place}")))
    }

    /// The address for writing the elements. It is temporary memory if they are stored as another type.
    pub(crate) fn place(&self, access: Access, temporary: &mut Temporaries) -> Result<*mut u8> {
        if self.stored == self.dtype {
            return self.resolve(access);
        }
        self.beside(access, temporary)
    }

    /// Takes over the values of another storage.
    #[cold]
    pub(crate) fn take(&self, from: &Storage) -> Result<()> {
        let own = self.storage.dtype().filter(|_| self.storage.is_narrowed());
        let dtype = own.or_else(|| from.dtype()).unwrap_or(self.stored);
        self.storage.copy_from(from, dtype, self.shape.size())
    }

    /// The byte addresses of the elements, given the first.
    pub(crate) fn span(&self, start: *const u8) -> Range<usize> {
        start.addr()..start.addr() + self.shape.size() * self.dtype.size()
    }

    /// The elements at `ptr`, as found by [`Operand::resolve`], rounded to a 16-bit type. Uses other memory unless
    /// they are stored in that type.
    pub(crate) fn rounded(&self, ptr: *mut u8, to: Option<DType>, held: &mut RunBuffers) -> Result<*mut u8> {
        let Some(to) = to.filter(|to| self.dtype == DType::F32 && self.storage.dtype() != Some(*to)) else {
            return Ok(ptr);
        };
        let n = self.shape.size();
        let buffer = Buffer::new(n * self.dtype.size())?;
        self.storage.copy_rounded_to_buffer(&buffer, self.dtype, n, to)?;
        let at = buffer.ptr();
        held.push(buffer);
        Ok(at)
    }

    /// Temporary memory for values to be stored in the elements later.
    pub(crate) fn beside(&self, access: Access, temporary: &mut Temporaries) -> Result<*mut u8> {
        let n = self.shape.size();
        let buffer = Buffer::new(n * self.dtype.size())?;
        let ptr = buffer.ptr();
        let narrow = self.storage.dtype().filter(|own| is_narrow(*own) && self.storage.is_ready());
        match narrow.filter(|_| access == Access::ReadWrite && self.dtype == DType::F32) {
            Some(stored) => {
                let (own, from) = self.storage.pin(stored, Access::Read)?;
                sixteen_bits::widen_into(&own, from, stored, &buffer, n);
            }
            None if access == Access::ReadWrite => self.storage.copy_to_buffer(&buffer, self.dtype, n)?,
            None => {}
        }
        temporary.push(Temporary {
            of: Arc::clone(&self.storage),
            n,
            stored: self.stored,
            dtype: self.dtype,
            buffer,
        });
        Ok(ptr)
    }
}

/// True for the types of 16 bits.
fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Inputs that were rounded or widened for one run of a step.
pub(crate) type RunBuffers = SmallVec<[Buffer; 2]>;

/// The address of the elements, valid during the current step.
#[cold]
fn hold_at(storage: &Storage, dtype: DType, access: Access) -> Result<*mut u8> {
    let (buffer, ptr) = storage.pin(dtype, access)?;
    pin_for_step(buffer);
    Ok(ptr)
}

/// Temporary values for a storage that stores another type.
pub(crate) struct Temporary {
    /// The storage to convert into.
    of: Arc<Storage>,
    /// The number of elements.
    n: usize,
    /// The type of the elements of `of`.
    stored: DType,
    /// The type of the values.
    dtype: DType,
    /// The memory of the values.
    buffer: Buffer,
}

/// The temporary values of one step, to be stored when the kernel has run.
pub(crate) type Temporaries = SmallVec<[Temporary; 1]>;

/// Converts temporary results into the arrays that they belong to.
pub(crate) fn store(temporaries: Temporaries) -> Result<()> {
    let store = |t: Temporary| {
        if t.dtype != DType::F32 || !is_narrow(t.stored) {
            return t.of.copy_from_buffer(t.stored, &t.buffer, t.dtype, t.n);
        }
        let (own, to) = t.of.pin(t.stored, Access::Write)?;
        sixteen_bits::narrow_into(&own, to, t.stored, &t.buffer, t.n);
        t.of.wrote();
        Ok(())
    };
    temporaries.into_iter().try_for_each(store)
}

/// A pointer to a function's [`Provenance`] in its slot, which the run keeps alive. Only a run that has locked the
/// function dereferences it, one step at a time. Concurrent runs of one graph are refused.
#[derive(Clone, Copy)]
pub(crate) struct ProvenancePtr(NonNull<Provenance>);

impl ProvenancePtr {
    /// A pointer to the saved state of a function.
    pub(crate) fn to(provenance: &mut Provenance) -> Self {
        Self(NonNull::from_mut(provenance))
    }
}

impl Deref for ProvenancePtr {
    type Target = Provenance;

    #[inline(always)]
    fn deref(&self) -> &Provenance {
        // SAFETY: the run keeps it alive and has exclusive use.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for ProvenancePtr {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Provenance {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

// SAFETY: a run that dereferences the pointer has locked the function.
unsafe impl Send for ProvenancePtr {}

/// The type in which an operation reads input `i`.
pub(crate) fn read_as(op: &Op, i: usize, compute: Precision) -> DType {
    match op.kind(i) {
        Kind::index => DType::I64,
        Kind::uint8 => DType::U8,
        Kind::int8 => DType::I8,
        Kind::float | Kind::optional | Kind::list => compute.dtype(),
    }
}
