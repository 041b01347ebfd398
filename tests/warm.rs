//! A static training step that has run before allocates nothing: neither on the heap nor for buffers.
#![cfg(not(feature = "python"))] // which brings an allocator of its own

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kinnor::array::{memory_stats, reset_peak_memory};
use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, apply};
use kinnor::kernels::threads;
use kinnor::ops::Value;
use kinnor::solvers::{Existing, Hooks, find};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what each thread asks for.
struct Counting;

// SAFETY: all is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

fn leaf(shape: &[usize], need_grad: bool) -> Variable {
    let size: usize = shape.iter().product();
    let values: Vec<f64> = (0..size).map(|i| ((i * 7919 % 1000) as f64 - 500.0) / 5000.0).collect();
    Variable::from_values(shape, &values).expect("fits").with_need_grad(need_grad)
}

fn one(name: &str, x: &[&Variable], arguments: &[Value]) -> Variable {
    apply(name, x, arguments).expect("builds").remove(0)
}

/// Heap allocations of this thread while `f` runs, and bytes of buffers that it had beside those from before.
fn allocations(f: impl FnOnce()) -> (usize, usize) {
    let live = memory_stats().live;
    reset_peak_memory();
    let before = COUNT.get();
    f();
    let count = COUNT.get() - before;
    (count, memory_stats().peak - live)
}

#[test]
fn a_warm_step_allocates_nothing() {
    for n in [1, 2] {
        threads::set_num_threads(n);
        let x = leaf(&[64, 300], false);
        let t = Variable::from_values([64, 1], &[3.0; 64]).expect("fits");
        let parameters: Vec<Variable> =
            [&[300, 256][..], &[256], &[256, 10], &[10]].into_iter().map(|s| leaf(s, true)).collect();
        let h = one("affine", &[&x, &parameters[0], &parameters[1]], &[]);
        let h = one("relu", &[&h], &[]);
        let h = one("tanh", &[&h], &[]);
        let y = one("affine", &[&h, &parameters[2], &parameters[3]], &[]);
        let loss = one("mean", &[&one("softmax_cross_entropy", &[&y, &t], &[])], &[]);
        let solver = find("Adam").expect("is registered").solver(&[Value::Float(1e-3)]).expect("binds");
        let named = parameters.iter().enumerate().map(|(i, p)| (i.to_string(), p.clone())).collect();
        solver.set_parameters(named, Existing::Removed).expect("fit");
        let step = |clear: bool| {
            let forward = ForwardOptions { clear_no_need_grad: clear, ..Default::default() };
            loss.forward(&forward).expect("runs");
            solver.zero_grad();
            let backward = BackwardOptions { clear_buffer: clear, ..Default::default() };
            loss.backward(&backward).expect("runs");
            solver.update(Hooks::none()).expect("runs");
        };
        for _ in 0..3 {
            step(false);
        }
        let found = allocations(|| step(false));
        assert_eq!(found, (0, 0), "{n} threads: heap allocations, bytes of buffers");
    }
}
