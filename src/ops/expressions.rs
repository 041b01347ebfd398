//! Array expressions for gradient rules: symbols that are reshaped, broadcast and summed.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::ops::arrangement::array::{Broadcast, Constant, Reshape, Transpose};
use crate::ops::contract::symbol::with_builder;
use crate::ops::reductions::reduction::Sum;
use crate::ops::{Compute, Op, Sym};

impl Sym {
    /// The first output of `op` on `x`. Constants become arrays with the shape of the first variable in `x`.
    pub fn apply(op: impl Compute, x: &[Self]) -> Self {
        Self::apply_op(Op::new(op), x)[0]
    }

    /// Every output of `op` on `x`, as [`Sym::apply`].
    pub fn apply_op(op: Op, x: &[Self]) -> SmallVec<[Self; 1]> {
        let like = x.iter().find(|x| matches!(x, Self::Node(_))).map_or_else(Shape::scalar, |x| x.shape());
        let x: SmallVec<[u32; 4]> = x.iter().map(|x| x.node(&like)).collect();
        Self::build_op(op, &x)
    }

    /// The variable of a symbol. A constant becomes a variable of shape `shape`.
    pub fn node(self, shape: &Shape) -> u32 {
        match self {
            Self::Node(v) => v,
            Self::Const(val) => {
                let op = Op::new(Constant { val, shape: shape.iter().map(|d| *d as i64).collect() });
                with_builder(|b| b.apply(op, &[]), || SmallVec::from_elem(0, 1))[0]
            }
        }
    }

    /// The same elements in another shape.
    pub fn reshape(self, shape: &[usize]) -> Self {
        let shape = shape.iter().map(|d| *d as i64).collect();
        Self::apply(Reshape { shape, inplace: false, axes: Vec::new() }, &[self])
    }

    /// With permuted axes: axis `i` of the result is axis `axes[i]` of this.
    pub fn transpose(self, axes: &[usize]) -> Self {
        Self::apply(Transpose { axes: axes.iter().map(|a| *a as i64).collect() }, &[self])
    }

    /// The sum over `axes`, which remain with length one if `keep` is set.
    pub fn sum(self, axes: &[usize], keep: bool) -> Self {
        if axes.is_empty() {
            return self;
        }
        let axis = Some(axes.iter().map(|a| *a as i64).collect());
        Self::apply(Sum { axis, keepdims: keep }, &[self])
    }

    /// Broadcast to `shape`, along axes of length one and new leading axes.
    pub fn broadcast(self, shape: &Shape) -> Self {
        match self {
            Self::Const(_) => Self::Node(self.node(shape)),
            Self::Node(_) if self.shape() == *shape => self,
            Self::Node(_) => {
                let own = self.shape();
                let lead = shape.ndim() - own.ndim();
                let padded: Vec<usize> = std::iter::repeat_n(1, lead).chain(own.iter().copied()).collect();
                let x = if lead == 0 { self } else { self.reshape(&padded) };
                Self::apply(Broadcast { shape: shape.iter().map(|d| *d as i64).collect() }, &[x])
            }
        }
    }

    /// The sum over the axes along which `shape` was broadcast to the shape of this: the gradient of broadcasting.
    pub fn sum_to(self, shape: &Shape) -> Self {
        let own = self.shape();
        if own == *shape {
            return self;
        }
        if let Self::Const(_) = self {
            return self;
        }
        let lead = own.ndim() - shape.ndim();
        let axes: Vec<usize> =
            (0..own.ndim()).filter(|a| *a < lead || (shape[*a - lead] == 1 && own[*a] != 1)).collect();
        self.sum(&axes, true).reshape(shape)
    }
}
