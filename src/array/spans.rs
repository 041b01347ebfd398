//! Free memory in order of address: split to the requested size, and merged with free neighbours. Knows addresses and
//! sizes, not limits or small blocks.

use std::ops::Range;

use super::block::MemoryBlock;
use super::system::{self, HUGE, PAGE};

/// Initial capacity for spans.
const CAPACITY: usize = 256;

/// Free memory in whole pages.
pub(super) struct FreeSpans {
    /// Free runs of pages, by address.
    spans: Vec<MemoryBlock>,
    /// Start and length of mappings that must be unmapped as a whole.
    wholes: Vec<(usize, usize)>,
    /// Bytes of all spans.
    bytes: usize,
}

impl FreeSpans {
    /// No memory yet.
    pub(super) const fn new() -> Self {
        Self { spans: Vec::new(), wholes: Vec::new(), bytes: 0 }
    }

    /// Bytes of free memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
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
        self.bytes -= size;
        if length == size {
            return Some(self.spans.remove(i));
        }
        Some(self.spans[i].cut(size))
    }

    /// Returns memory that came from [`FreeSpans::take`].
    pub(super) fn give(&mut self, block: MemoryBlock) {
        self.bytes += block.size();
        self.insert(block);
    }

    /// Stores free memory as a span, or as a part of its neighbours.
    fn insert(&mut self, block: MemoryBlock) {
        self.spans.reserve(if self.spans.is_empty() { CAPACITY } else { 1 }); // a warm step must not reallocate
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

    /// Returns memory to the system, longest span first, until `bytes` are returned. Returns the number of bytes, which
    /// may be larger, up to a huge page or a mapping. Ends of a span that share a system page with other memory stay.
    pub(super) fn unmap(&mut self, bytes: usize) -> usize {
        self.unmap_pages(bytes, system::page(), |block| {
            // SAFETY: it is whole pages of what the system gave, and all of a mapping where that is asked for.
            unsafe { system::unmap(block) }
        })
    }

    /// Returns whole pages of `page` bytes to the system by `unmap`, longest span first. A block that `unmap` returns
    /// was refused and stays free.
    fn unmap_pages(
        &mut self,
        bytes: usize,
        page: usize,
        unmap: impl Fn(MemoryBlock) -> Option<MemoryBlock>,
    ) -> usize {
        let mut gone = 0;
        while gone < bytes {
            let longest = (0..self.spans.len()).max_by_key(|i| self.pages_of(&self.spans[*i], page).len());
            let Some(i) = longest else { break };
            let mut pages = self.pages_of(&self.spans[i], page);
            if pages.is_empty() {
                break;
            }
            if system::TAKES_PARTS {
                let end = pages.start.saturating_add(bytes - gone).checked_next_multiple_of(HUGE);
                pages.end = end.map_or(pages.end, |end| end.min(pages.end));
            }
            let mut span = self.spans.remove(i);
            if pages.end < span.end() {
                let behind = span.cut(span.end() - pages.end);
                self.insert(behind);
            }
            if span.address() < pages.start {
                let whole = span.cut(pages.len());
                self.insert(std::mem::replace(&mut span, whole));
            }
            if let Some(refused) = unmap(span) {
                self.insert(refused);
                break;
            }
            self.wholes.retain(|(start, _)| *start != pages.start);
            gone += pages.len();
        }
        self.bytes -= gone;
        gone
    }

    /// The addresses of a span that the system would take back.
    fn pages_of(&self, span: &MemoryBlock, page: usize) -> Range<usize> {
        let (start, end) = (span.address(), span.end());
        match system::TAKES_PARTS {
            true => start.next_multiple_of(page)..end / page * page,
            false if self.wholes.contains(&(start, span.size())) => start..end,
            false => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn freed_pieces_join_in_any_order() {
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
    fn only_whole_pages_of_the_system_go_back() {
        if !system::TAKES_PARTS {
            return;
        }
        for factor in [1, 4, 16] {
            let page = factor * system::page();
            let all = system::map(32 * page).expect("memory");
            let (start, end) = (all.address(), all.end());
            let mut spans = FreeSpans::new();
            spans.add(all);
            let used: Vec<MemoryBlock> =
                (0..).map_while(|i| spans.take((1 + i * 7919 % 41) * PAGE)).collect();
            // Every second block is freed; those beside them stay in use.
            let (freed, used): (Vec<_>, Vec<_>) = used.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
            for (_, block) in freed {
                spans.give(block);
            }
            let went = RefCell::new(Vec::new());
            let gone = spans.unmap_pages(usize::MAX, page, |block| {
                went.borrow_mut().push(block.address()..block.end());
                None
            });
            let went = went.into_inner();
            assert!(gone > 0 && gone == went.iter().map(Range::len).sum::<usize>());
            for pages in &went {
                assert!(pages.start % page == 0 && pages.end % page == 0, "a part of a page");
                assert!(start <= pages.start && pages.end <= end);
                let others = used.iter().map(|(_, block)| block).chain(&spans.spans);
                assert!(others.into_iter().all(|b| b.end() <= pages.start || pages.end <= b.address()));
            }
            // A page goes once its last block is free. Only the parts of pages at both ends stay.
            let (first, last) = (start.next_multiple_of(page), end / page * page);
            let ends = usize::from(first > start) + usize::from(end > last);
            for (_, block) in used {
                spans.give(block);
            }
            assert_eq!(spans.bytes(), spans.spans.iter().map(MemoryBlock::size).sum::<usize>());
            let left = spans.unmap_pages(usize::MAX, page, |_| None);
            assert_eq!(spans.bytes(), spans.spans.iter().map(MemoryBlock::size).sum::<usize>());
            assert_eq!((gone + left, spans.spans.len()), (last - first, ends), "pages of {page} bytes");
        }
    }

    #[test]
    fn spans_that_the_system_refuses_to_unmap_stay() {
        let mut spans = FreeSpans::new();
        spans.add(system::map(64 * PAGE).expect("memory"));
        let size = spans.spans[0].size();
        assert_eq!(spans.unmap_pages(usize::MAX, system::page(), Some), 0);
        assert!(spans.spans.len() == 1 && spans.spans[0].size() == size);
        assert_eq!(spans.unmap(usize::MAX), size);
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
