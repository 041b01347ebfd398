//! Numbered slots in chunks, which are reused.

/// The number of a slot. Slots are reused, and a generation distinguishes their successive owners.
pub(crate) type Ix = u32;

/// No slot.
pub(crate) const NONE: Ix = u32::MAX;

/// Slots in chunks, so growth never moves them.
pub(crate) struct Slab<T> {
    /// The slots. Slot `i` is entry `i % (1 << CHUNK)` of chunk `i >> CHUNK`.
    chunks: Vec<Box<[T; 1 << CHUNK]>>,
    /// Slots not in use.
    pub(crate) free: Vec<Ix>,
    /// Slots in use or free.
    len: Ix,
}

/// Slots of a chunk, as a power of two.
const CHUNK: u32 = 10;

impl<T> Slab<T> {
    /// No slots.
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// A slot to fill, and its number: a freed one with its old content, or a blank one.
    #[inline(always)]
    pub(crate) fn take(&mut self, blank: impl Fn() -> T) -> (Ix, &mut T) {
        let ix = self.free.pop().unwrap_or_else(|| self.grow(blank));
        (ix, &mut self[ix])
    }

    /// Adds a slot.
    #[cold]
    fn grow(&mut self, blank: impl Fn() -> T) -> Ix {
        if (self.len >> CHUNK) as usize == self.chunks.len() {
            let chunk: Vec<T> = (0..1 << CHUNK).map(|_| blank()).collect();
            self.chunks
                .push(chunk.try_into().unwrap_or_else(|_| unreachable!("a chunk has that many slots")));
        }
        self.len += 1;
        self.len - 1
    }

    /// All slots, including free ones.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut())
    }

    /// The number of slots in use.
    pub(crate) fn in_use(&self) -> usize {
        self.len as usize - self.free.len()
    }
}

impl<T> std::ops::Index<Ix> for Slab<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, ix: Ix) -> &T {
        debug_assert!(ix < self.len, "a number is that of a slot");
        &self.chunks[(ix >> CHUNK) as usize][(ix & ((1 << CHUNK) - 1)) as usize]
    }
}

impl<T> std::ops::IndexMut<Ix> for Slab<T> {
    #[inline(always)]
    fn index_mut(&mut self, ix: Ix) -> &mut T {
        debug_assert!(ix < self.len, "a number is that of a slot");
        &mut self.chunks[(ix >> CHUNK) as usize][(ix & ((1 << CHUNK) - 1)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_moves_no_slot_and_a_freed_one_is_used_again() {
        let mut slab = Slab::new();
        let (first, _) = slab.take(|| 7_u64);
        let at = &raw const slab[first];
        let others: Vec<Ix> = (0..5000).map(|_| slab.take(|| 0).0).collect();
        assert_eq!((&raw const slab[first], slab[first], slab.in_use()), (at, 7, 5001));
        slab.free.push(others[3]);
        assert_eq!((slab.in_use(), slab.take(|| 0).0, slab.in_use()), (5000, others[3], 5001));
    }
}
