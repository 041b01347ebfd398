//! A static training step or inference that has run before does not allocate, neither on the heap nor buffers.
#![cfg(not(feature = "python"))] // the Python feature has an allocator of its own

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use kinnor::array::{memory_stats, reset_peak_memory};
use kinnor::graph::{BackwardOptions, ForwardOptions, Variable, apply};
use kinnor::kernels::threads;
use kinnor::ops::Value;
use kinnor::solvers::{Existing, Hooks, find};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a count of allocations of all threads. Tests run one at a time.
struct Counting;

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
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

/// Returns a leaf of this shape.
fn leaf(shape: &[usize], need_grad: bool) -> Variable {
    let size: usize = shape.iter().product();
    let values: Vec<f64> = (0..size).map(|i| ((i * 7919 % 1000) as f64 - 500.0) / 5000.0).collect();
    Variable::from_values(shape, &values).expect("fits").with_need_grad(need_grad)
}

/// Returns the first output of an operation.
fn one(name: &str, x: &[&Variable], arguments: &[Value]) -> Variable {
    apply(name, x, arguments).expect("builds").remove(0)
}

/// Returns the number of heap allocations while `f` runs, and the peak bytes of its new buffers.
fn allocations(f: impl FnOnce()) -> (usize, usize) {
    let live = memory_stats().live;
    reset_peak_memory();
    let before = COUNT.load(Ordering::Relaxed);
    f();
    let count = COUNT.load(Ordering::Relaxed) - before;
    (count, memory_stats().peak - live)
}

/// A loss and its parameters.
type Net = (Variable, Vec<Variable>);

/// A network of affine layers.
fn mlp() -> Net {
    let x = leaf(&[64, 300], false);
    let t = Variable::from_values([64, 1], &[3.0; 64]).expect("fits");
    let parameters: Vec<Variable> =
        [&[300, 256][..], &[256], &[256, 10], &[10]].into_iter().map(|s| leaf(s, true)).collect();
    let h = one("affine", &[&x, &parameters[0], &parameters[1]], &[]);
    let h = one("relu", &[&h], &[]);
    let h = one("tanh", &[&h], &[]);
    let y = one("affine", &[&h, &parameters[2], &parameters[3]], &[]);
    (one("mean", &[&one("softmax_cross_entropy", &[&y, &t], &[])], &[]), parameters)
}

/// Builds a network layer by layer.
struct Layers {
    /// The output of the last layer.
    h: Variable,
    /// The parameters of all layers, in order.
    parameters: Vec<Variable>,
    /// Normalize by batch statistics, not by running statistics.
    batch_stat: bool,
}

impl Layers {
    /// Adds a parameter.
    fn parameter(&mut self, shape: &[usize]) -> Variable {
        self.parameters.push(leaf(shape, true));
        self.parameters[self.parameters.len() - 1].clone()
    }

    /// Applies an operation to the last result.
    fn then(&mut self, name: &str, others: &[&Variable], arguments: &[Value]) -> &mut Self {
        let h = self.h.clone();
        self.h = one(name, &[&[&h], others].concat(), arguments);
        self
    }

    /// Adds a convolution with bias, `relu` and batch normalization.
    fn convolution(
        &mut self,
        name: &str,
        w: &[usize],
        maps: usize,
        [pad, stride, group, dilation]: [i64; 4],
    ) -> &mut Self {
        let (w, b) = (self.parameter(w), self.parameter(&[maps]));
        let [pad, stride, dilation] = [pad, stride, dilation].map(|v| Value::Ints(vec![v; 2]));
        let mut arguments = vec![Value::Int(1), pad, stride, dilation];
        if name != "depthwise_convolution" {
            arguments.push(Value::Int(group));
        }
        self.then(name, &[&w, &b], &arguments).then("relu", &[], &[]);
        let shape = [1, maps, 1, 1];
        let (beta, gamma) = (self.parameter(&shape), self.parameter(&shape));
        let mean = leaf(&shape, false);
        let variance = Variable::from_values(shape, &vec![1.0; maps]).expect("fits");
        let arguments =
            [Value::Ints(vec![1]), Value::Float(0.9), Value::Float(1e-5), Value::Bool(self.batch_stat)];
        self.then("batch_normalization", &[&beta, &gamma, &mean, &variance], &arguments)
    }
}

/// A convolutional network with batch statistics.
fn convolutions() -> Net {
    convolutions_by(true)
}

/// A convolutional network that covers several algorithms.
fn convolutions_by(batch_stat: bool) -> Net {
    let mut net = Layers { h: leaf(&[4, 3, 80, 80], false), parameters: Vec::new(), batch_stat };
    let two = || Value::Ints(vec![2; 2]);
    net.convolution("convolution", &[16, 3, 11, 11], 16, [5, 2, 1, 1]) // a large kernel
        .convolution("convolution", &[32, 16, 3, 3], 32, [1, 1, 1, 1]) // direct
        .then("max_pooling", &[], &[two()])
        .convolution("convolution", &[32, 32, 3, 3], 32, [1, 1, 1, 1]) // Winograd
        .convolution("convolution", &[32, 32, 3, 3], 32, [2, 1, 1, 2]) // Winograd by phases
        .convolution("convolution", &[32, 32, 3, 3], 32, [6, 1, 1, 6]) // by regions
        .convolution("depthwise_convolution", &[32, 3, 3], 32, [1, 1, 1, 1])
        .convolution("depthwise_convolution", &[32, 3, 3], 32, [2, 1, 1, 2])
        .convolution("depthwise_convolution", &[32, 7, 7], 32, [3, 2, 1, 1])
        .convolution("convolution", &[48, 32, 1, 1], 48, [0, 1, 1, 1])
        .convolution("convolution", &[48, 24, 3, 3], 48, [1, 1, 2, 1])
        .convolution("convolution", &[48, 48, 1, 1], 48, [0, 2, 1, 1])
        .convolution("deconvolution", &[48, 32, 3, 3], 32, [1, 2, 1, 1])
        .convolution("convolution", &[64, 32, 3, 3], 64, [1, 2, 1, 1])
        .convolution("convolution", &[64, 64, 3, 3], 64, [1, 1, 1, 1]) // Winograd with few tiles
        .then("average_pooling", &[], &[Value::Ints(vec![3; 2])]);
    let (w, b) = (net.parameter(&[64, 10]), net.parameter(&[10]));
    let t = Variable::from_values([4, 1], &[3.0; 4]).expect("fits");
    net.then("affine", &[&w, &b], &[]).then("softmax_cross_entropy", &[&t], &[]).then("mean", &[], &[]);
    (net.h, net.parameters)
}

/// A weight in several products, which stays packed between them.
fn recurrent() -> Net {
    let (w, b) = (leaf(&[200, 200], true), leaf(&[200], true));
    let mut h = leaf(&[32, 200], false);
    for _ in 0..4 {
        h = one("tanh", &[&one("affine", &[&h, &w, &b], &[])], &[]);
    }
    (one("mean", &[&h], &[]), vec![w, b])
}

#[test]
fn a_warm_step_allocates_nothing() {
    for (n, net, clear) in [1, 2].into_iter().flat_map(|n| {
        [mlp as fn() -> Net, convolutions, recurrent]
            .into_iter()
            .flat_map(move |net| [false, true].map(|c| (n, net, c)))
    }) {
        threads::set_num_threads(n);
        let (loss, parameters) = net();
        let solver = find("Adam").expect("is registered").solver(&[Value::Float(1e-3)]).expect("binds");
        let named = parameters.iter().enumerate().map(|(i, p)| (i.to_string(), p.clone())).collect();
        solver.set_parameters(named, Existing::Removed).expect("fit");
        let step = || {
            let forward = ForwardOptions { clear_no_need_grad: clear, ..Default::default() };
            loss.forward(&forward).expect("runs");
            solver.zero_grad().expect("are whole");
            let backward = BackwardOptions { clear_buffer: clear, ..Default::default() };
            loss.backward(&backward).expect("runs");
            solver.update(Hooks::none()).expect("runs");
        };
        for _ in 0..3 {
            step();
        }
        let (heap, buffers) = allocations(step);
        assert_eq!(heap, 0, "{n} threads, clearing: {clear}: heap allocations");
        if !clear {
            assert_eq!(buffers, 0, "{n} threads: bytes of buffers");
        }
    }
    // Inference with fused functions. In the same test, because allocations of all threads are counted.
    for n in [1, 2] {
        threads::set_num_threads(n);
        let (loss, _) = convolutions_by(false);
        let step = || {
            loss.forward(&ForwardOptions { clear_buffer: true, ..Default::default() }).expect("runs");
        };
        for _ in 0..3 {
            step();
        }
        assert_eq!(allocations(step).0, 0, "{n} threads, a prediction: heap allocations");
    }
}
