//! Free memory in order of address: split to the requested size, and merged with free neighbours. Knows addresses and
//! sizes, not limits or small blocks.

use super::block::MemoryBlock;
use super::system::{self, PAGE};

/// Initial capacity for spans.
const ROOM: usize = 256;

/// Free memory in whole pages.
pub(super) struct FreeSpans {
    spans: Vec<MemoryBlock>,
    /// Start and length of mappings that must be unmapped as a whole.
    wholes: Vec<(usize, usize)>,
}

impl FreeSpans {
    pub(super) const fn new() -> Self {
        Self { spans: Vec::new(), wholes: Vec::new() }
    }

    /// Adds fresh memory from the system.
    pub(super) fn add(&mut self, block: MemoryBlock) {
        if !system::TAKES_PARTS {
            self.wholes.push((block.address(), block.size()));
        }
        self.give(block);
    }

    /// Takes the last `size` bytes, whole pages, of the shortest span that is long enough. On most systems the next
    /// mapping is placed below and merges with the remainder.
    pub(super) fn take(&mut self, size: usize) -> Option<MemoryBlock> {
        debug_assert!(size.is_multiple_of(PAGE), "a part of a page");
        let mut best: Option<(usize, usize)> = None;
        for (i, span) in self.spans.iter().enumerate() {
            let length = span.size();
            if length >= size && best.is_none_or(|(_, least)| length < least) {
                best = Some((i, length));
                if length == size {
                    break;
                }
            }
        }
        let (i, length) = best?;
        if length == size {
            return Some(self.spans.remove(i));
        }
        Some(self.spans[i].cut(size))
    }

    /// Returns memory that came from [`FreeSpans::take`].
    pub(super) fn give(&mut self, block: MemoryBlock) {
        self.spans.reserve(if self.spans.is_empty() { ROOM } else { 1 }); // a warm step must not reallocate
        let i = self.spans.partition_point(|span| span.address() < block.address());
        let meets = |first: &MemoryBlock, second: &MemoryBlock| {
            first.end() == second.address()
                && (system::TAKES_PARTS || self.wholes.iter().all(|(start, _)| *start != second.address()))
        };
        let before = i > 0 && meets(&self.spans[i - 1], &block);
        let after = i < self.spans.len() && meets(&block, &self.spans[i]);
        match (before, after) {
            (true, true) => {
                let next = self.spans.remove(i);
                self.spans[i - 1].join(block);
                self.spans[i - 1].join(next);
            }
            (true, false) => self.spans[i - 1].join(block),
            (false, true) => {
                let next = std::mem::replace(&mut self.spans[i], block);
                self.spans[i].join(next);
            }
            (false, false) => self.spans.insert(i, block),
        }
    }

    /// Unmaps spans, the longest first, until `bytes` bytes are returned. Returns how many were.
    pub(super) fn unmap(&mut self, bytes: usize) -> usize {
        let mut gone = 0;
        while gone < bytes {
            let wholes = &self.wholes;
            let goes =
                |span: &MemoryBlock| system::TAKES_PARTS || wholes.contains(&(span.address(), span.size()));
            let longest =
                (0..self.spans.len()).filter(|i| goes(&self.spans[*i])).max_by_key(|i| self.spans[*i].size());
            let Some(i) = longest else { break };
            let span = self.spans.remove(i);
            self.wholes.retain(|(start, _)| *start != span.address());
            gone += span.size();
            // SAFETY: the span is memory from the system, and a whole mapping where that is required.
            unsafe { system::unmap(span) };
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_joins_again_in_any_order() {
        let mut spans = FreeSpans::new();
        let all = system::map(64 * PAGE).expect("memory");
        let (start, size) = (all.address(), all.size());
        spans.add(all);
        for seed in 1..50_usize {
            let mut taken: Vec<MemoryBlock> =
                (0..100).map_while(|i| spans.take((1 + i * seed * 7919 % 11) * PAGE)).collect();
            taken.sort_unstable_by_key(MemoryBlock::address);
            assert!(taken.windows(2).all(|pair| pair[0].end() <= pair[1].address()));
            while !taken.is_empty() {
                spans.give(taken.swap_remove(seed * 31 % taken.len()));
            }
            assert!(
                spans.spans.len() == 1 && spans.spans[0].address() == start && spans.spans[0].size() == size
            );
        }
        assert_eq!(spans.unmap(1), size);
        assert!(spans.take(PAGE).is_none() && spans.unmap(1) == 0);
    }

    #[test]
    fn the_shortest_span_that_fits_is_cut() {
        let mut spans = FreeSpans::new();
        spans.add(system::map(64 * PAGE).expect("memory"));
        let blocks = [8, 1, 4, 1].map(|n| spans.take(n * PAGE).expect("memory"));
        let starts = blocks.each_ref().map(MemoryBlock::address);
        let [long, first, short, last] = blocks;
        spans.give(long);
        spans.give(short);
        let found = [4, 3, 20].map(|n| spans.take(n * PAGE).expect("memory"));
        assert_eq!(
            found.each_ref().map(MemoryBlock::address),
            [starts[2], starts[0] + 5 * PAGE, starts[3] - 20 * PAGE]
        );
        found.into_iter().chain([first, last]).for_each(|block| spans.give(block));
        assert_eq!(spans.unmap(usize::MAX), 64 * PAGE);
    }
}
