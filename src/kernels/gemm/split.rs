//! Even division of work.

use std::ops::Range;

/// A number of items divided into parts as evenly as possible.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct EvenSplit {
    /// The number of parts.
    parts: usize,
    /// Items of a small part.
    each: usize,
    /// The number of parts with one item more. They come first.
    more: usize,
}

impl EvenSplit {
    /// Divides `count` items into `parts`, at least one.
    pub(in crate::kernels) fn new(count: usize, parts: usize) -> Self {
        let parts = parts.max(1);
        Self { parts, each: count / parts, more: count % parts }
    }

    /// The number of parts.
    pub(in crate::kernels) fn parts(self) -> usize {
        self.parts
    }

    /// The smallest number of items in a part.
    pub(in crate::kernels) fn each(self) -> usize {
        self.each
    }

    /// True if part `i` has one item more than that.
    pub(in crate::kernels) fn has_one_more(self, i: usize) -> bool {
        i < self.more
    }

    /// The items of part `i`. The first parts have one more.
    #[inline(always)]
    pub(in crate::kernels) fn part(self, i: usize) -> Range<usize> {
        let start = |i: usize| i * self.each + i.min(self.more);
        start(i)..start(i + 1)
    }
}
