//! Orders of functions: a forward run visits each function after its producers, by ascending rank, a backward run by
//! descending rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::graph::arena::describe::describe;
use crate::graph::arena::{Arena, Ix, NONE};
use crate::{Error, Result};

/// The order in which functions run backward from `root`: by descending rank, and by discovery among equal ranks.
pub(crate) fn backward_order(a: &mut Arena, root: Ix) -> Vec<Ix> {
    backward_order_from(a, a.variables[root].parent)
}

/// The order in which functions run backward from `f`, as [`backward_order`].
pub(crate) fn backward_order_from(a: &mut Arena, f: Ix) -> Vec<Ix> {
    up_to(a, &[f], |_, _| true);
    descending(a, &[f], |a, f| a.functions[f].need_grad)
}

/// The functions above `roots`, each after its producers, depth first with inputs from left to right.
///
/// Visits only functions that `enter` accepts. Uses an explicit stack instead of recursion.
pub(crate) fn depth_first(a: &mut Arena, roots: &[Ix], enter: impl Fn(&Arena, Ix) -> bool) -> Vec<Ix> {
    let ends: SmallVec<[Ix; 2]> = roots.iter().map(|root| a.variables[*root].parent).collect();
    up_to(a, &ends, enter)
}

/// The functions on which `ends` depend, and `ends`, in the order of [`depth_first`]. Visits only functions that
/// `enter` accepts, and skips `NONE` in `ends`. Recomputes the ranks into the scratch numbers, since stored ranks may
/// be stale after an edit.
pub(crate) fn up_to(a: &mut Arena, ends: &[Ix], enter: impl Fn(&Arena, Ix) -> bool) -> Vec<Ix> {
    let mark = a.new_mark();
    let mut order = Vec::new();
    let mut path: Vec<(Ix, u32)> = Vec::new();
    for end in ends {
        let mut next = *end;
        loop {
            if next != NONE && a.functions[next].mark != mark && enter(a, next) {
                a.functions[next].mark = mark;
                path.push((next, 0));
            }
            let Some((f, i)) = path.last_mut() else { break };
            let slot = &a.functions[*f];
            if let Some(input) = slot.inputs.get(*i as usize) {
                *i += 1;
                next = a.variables[*input].parent;
            } else {
                let rank = |v: &Ix| match a.variables[*v].parent {
                    NONE => 0,
                    p => a.functions[p].at,
                };
                let rank = slot.inputs.iter().map(rank).max().unwrap_or(0) + 1;
                a.functions[*f].at = rank;
                order.push(*f);
                path.pop();
                next = NONE;
            }
        }
    }
    order
}

/// The order in which functions run backward from `ends`: by descending scratch number, and by discovery among equal
/// ones. Visits only functions that `enter` accepts, and only through variables that need a gradient. Leaves the
/// newest mark on the visited functions.
pub(crate) fn descending(a: &mut Arena, ends: &[Ix], enter: impl Fn(&Arena, Ix) -> bool) -> Vec<Ix> {
    let mark = a.new_mark();
    let mut heap = BinaryHeap::new();
    let mut order = Vec::new();
    let mut found = 0_u32;
    let mut push = |a: &mut Arena, heap: &mut BinaryHeap<(u32, Reverse<u32>, Ix)>, f: Ix| {
        if a.functions[f].mark != mark && enter(a, f) {
            a.functions[f].mark = mark;
            heap.push((a.functions[f].at, Reverse(found), f));
            found += 1;
        }
    };
    ends.iter().filter(|f| **f != NONE).for_each(|f| push(a, &mut heap, *f));
    while let Some((_, _, f)) = heap.pop() {
        order.push(f);
        for i in 0..a.functions[f].inputs.len() {
            let v = a.functions[f].inputs[i];
            let parent = a.variables[v].parent;
            if parent != NONE && a.need_grad(v) {
                push(a, &mut heap, parent);
            }
        }
    }
    order
}

/// Returns an error if an output of the function was reshaped since it was set up, so its result is lost.
pub(crate) fn check_outputs(a: &Arena, f: Ix) -> Result<()> {
    match a.functions[f].outputs.iter().any(|o| a.is_reshaped(f, o.tensor)) {
        true => check_shapes(a, f, "forward"),
        false => Ok(()),
    }
}

/// Returns an error if inputs or outputs of the function were reshaped since its forward run. Kernels rely on the
/// shapes.
pub(crate) fn check_shapes(a: &Arena, f: Ix, what: &str) -> Result<()> {
    if !a.has_other_shapes(f) {
        return Ok(());
    }
    let slot = &a.functions[f];
    let reshaped = |tensor: Ix| a.is_reshaped(f, tensor);
    let input = slot.inputs.iter().position(|v| reshaped(a.variables[*v].tensor));
    let output = || slot.outputs.iter().position(|o| reshaped(o.tensor)).unwrap_or(0);
    let changed = match input {
        Some(i) => format!("input {i} is {} now", describe(a, slot.inputs[i])),
        None => {
            format!("output {} is of shape {} now", output(), a.tensors[slot.outputs[output()].tensor].shape)
        }
    };
    let made: Vec<String> = slot.outputs.iter().map(|o| a.tensors[o.tensor].shape.to_string()).collect();
    let of = if input.is_some() { format!(", which made {}", made.join(", ")) } else { String::new() };
    Err(Error::Graph(format!(
        "{what} of {}: expected the shapes of its forward run{of}, but {changed}; run forward() again",
        a.op(f).name()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Variable, apply, arena};

    /// Applies an operation without arguments and returns its first output.
    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    /// Builds `(exp(x) + sin(x)) * exp(x)`, and returns its functions in order of creation.
    fn diamond() -> (Variable, [Ix; 4]) {
        let x = Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(true);
        let (a, b) = (one("exp", &[&x]), one("sin", &[&x]));
        let sum = one("add2", &[&a, &b]);
        let y = one("mul2", &[&sum, &a]);
        let functions = arena::with(|arena| [&a, &b, &sum, &y].map(|v| arena.variables[v.ix()].parent));
        (y, functions)
    }

    #[test]
    fn each_function_comes_once_and_after_those_that_feed_it() {
        let (y, [exp, sin, sum, product]) = diamond();
        let order = arena::with(|a| depth_first(a, &[y.ix()], |_, _| true));
        assert_eq!(order, [exp, sin, sum, product]);
        let cut = arena::with(|a| depth_first(a, &[y.ix()], |_, f| f != sum));
        assert_eq!(cut, [exp, product]);
    }

    #[test]
    fn a_backward_run_goes_by_descending_rank() {
        let (y, [exp, sin, sum, product]) = diamond();
        let order = arena::with(|a| backward_order(a, y.ix()));
        assert_eq!(order, [product, sum, exp, sin]);
    }
}
