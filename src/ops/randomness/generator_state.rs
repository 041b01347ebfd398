//! State of operations that draw random numbers: their gradients need the same numbers again.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::kernels::Float;
use crate::kernels::random::PhiloxKey;
use crate::ops::{Backward, Declared, Run, Spec, Value};
use crate::{Error, Result};

/// A random operation with its state: the random numbers of its last forward run.
#[derive(Clone)]
pub(crate) struct Drawing<C> {
    /// The operation with its arguments.
    pub(crate) of: C,
    /// The key of the random numbers of the last run, if it has run. Clones share it.
    last: Arc<Mutex<Option<PhiloxKey>>>,
}

impl<C: Declared> Declared for Drawing<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        Ok(Self { of: C::bind(values)?, last: Arc::default() })
    }
    fn values(&self) -> Vec<Value> {
        self.of.values()
    }
}

impl<C: Declared> Drawing<C> {
    /// The key of `count` random numbers. A forward run gets new ones, a recomputation the same as before.
    pub(crate) fn draw<T: Float>(&self, run: &mut Run<'_, T>, seed: i64, count: usize) -> PhiloxKey {
        let key = run.random(seed, count);
        *self.last.lock() = Some(key);
        *run.state() = Some(key);
        key
    }

    /// The key of the forward run that a backward run belongs to. Prefers the function's own key: copies of a function
    /// share the other one.
    pub(crate) fn drawn<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<PhiloxKey> {
        (*run.state::<Option<PhiloxKey>>()).map_or_else(|| self.last(), Ok)
    }

    /// The key of the last forward run.
    pub(crate) fn last(&self) -> Result<PhiloxKey> {
        self.last.lock().ok_or_else(|| {
            let name = C::SPEC.name;
            Error::Graph(format!("{name}: expected a forward run before the backward run, got none"))
        })
    }
}
