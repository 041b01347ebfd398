//! Variables of a graph as parameters of a solver: the only file here that knows the graph.

use std::sync::Arc;

use super::{Pair, Source};
use crate::array::{Shape, Storage};
use crate::graph::Variable;

impl Source for Variable {
    fn shape(&self) -> Shape {
        self.shape()
    }

    fn data(&self) -> Arc<Storage> {
        self.data().storage
    }

    fn grad(&self) -> Arc<Storage> {
        self.grad().storage
    }

    fn add_pairs<'a>(all: impl Iterator<Item = &'a Self>, pairs: &mut Vec<Pair>) {
        Self::add_storages(all, pairs);
    }
}
