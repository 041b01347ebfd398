//! Memory that kernels borrow for the time of a call and that each thread keeps for the next one.

use std::cell::Cell;

use super::Float;

thread_local! {
    static KEPT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [f64; 8]);

/// Calls `f` with memory for `n` elements, their values undefined and the first at the start of a cache line. A call within a call gets memory of its own.
pub fn with<T: Float, R>(n: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    const { assert!(align_of::<T>() <= align_of::<Line>()) };
    let mut memory = KEPT.take();
    let needed = (n * size_of::<T>()).div_ceil(size_of::<Line>());
    if memory.len() < needed {
        memory.resize(needed, Line([0.0; 8]));
    }
    // SAFETY: the memory holds at least `n` elements, is aligned for a cache line, and any bits are a `f32` or `f64`.
    let result = f(unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), n) });
    KEPT.set(memory);
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn nested_calls_do_not_share_memory() {
        super::with(4, |a: &mut [f32]| {
            a.fill(1.0);
            super::with(4, |b: &mut [f64]| b.fill(2.0));
            assert_eq!(a, [1.0; 4]);
        });
    }
}
