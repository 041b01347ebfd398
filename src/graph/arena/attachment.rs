//! Data that upper layers attach to a node: plans, hooks, a pool of values. The arena only stores it and drops it
//! with the node.

use std::any::Any;
use std::sync::Arc;

use crate::ops::Operation;

/// Data of another layer with the lifetime of a node.
pub(crate) trait Attachment: Any + Send {
    /// The number of handles on an operation that this holds.
    fn operation_handles(&self, _op: &Arc<dyn Operation>) -> usize {
        0
    }
}

/// A slot for one attachment. Each slot holds one type, which the layer that owns the type requests.
#[derive(Default)]
pub(crate) struct Attached(Option<Box<dyn Attachment>>);

impl Attached {
    /// An empty slot.
    pub(crate) const NONE: Self = Self(None);

    /// The attachment, if any.
    #[inline]
    pub(crate) fn get<T: Attachment>(&self) -> Option<&T> {
        let tenant: &dyn Any = &**self.0.as_ref()?;
        tenant.downcast_ref()
    }

    /// The attachment, if any.
    #[inline]
    pub(crate) fn get_mut<T: Attachment>(&mut self) -> Option<&mut T> {
        let tenant: &mut dyn Any = &mut **self.0.as_mut()?;
        tenant.downcast_mut()
    }

    /// The attachment, created with its default if there is none.
    pub(crate) fn get_or_default<T: Attachment + Default>(&mut self) -> &mut T {
        let tenant: &mut dyn Any = &mut **self.0.get_or_insert_with(|| Box::new(T::default()));
        match tenant.downcast_mut() {
            Some(tenant) => tenant,
            None => unreachable!("a place has one type of tenant"),
        }
    }

    /// Removes the attachment and returns it.
    pub(crate) fn take(&mut self) -> Option<Box<dyn Attachment>> {
        self.0.take()
    }

    /// The number of handles on an operation that the attachment holds.
    pub(crate) fn operation_handles(&self, op: &Arc<dyn Operation>) -> usize {
        self.0.as_ref().map_or(0, |tenant| tenant.operation_handles(op))
    }
}
