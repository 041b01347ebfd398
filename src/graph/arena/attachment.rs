//! What the layers above keep beside a node: plans, hooks, a pool of values. The arena holds it, drops it with the node, and
//! knows no more of it.

use std::any::Any;
use std::sync::Arc;

use crate::ops::Operation;

/// Something of another layer's that lives and dies with a node.
pub(crate) trait Attachment: Any + Send {
    /// How many handles on an operation it has.
    fn operation_handles(&self, _op: &Arc<dyn Operation>) -> usize {
        0
    }
}

/// A place for one attachment. Each place has one type of tenant, which the layer that owns the type asks for.
#[derive(Default)]
pub(crate) struct Attached(Option<Box<dyn Attachment>>);

impl Attached {
    pub(crate) const NONE: Self = Self(None);

    /// The tenant, if there is one.
    #[inline]
    pub(crate) fn get<T: Attachment>(&self) -> Option<&T> {
        let tenant: &dyn Any = &**self.0.as_ref()?;
        tenant.downcast_ref()
    }

    /// The tenant, if there is one.
    #[inline]
    pub(crate) fn get_mut<T: Attachment>(&mut self) -> Option<&mut T> {
        let tenant: &mut dyn Any = &mut **self.0.as_mut()?;
        tenant.downcast_mut()
    }

    /// The tenant; a new one moves in where there is none.
    pub(crate) fn get_or_default<T: Attachment + Default>(&mut self) -> &mut T {
        let tenant: &mut dyn Any = &mut **self.0.get_or_insert_with(|| Box::new(T::default()));
        match tenant.downcast_mut() {
            Some(tenant) => tenant,
            None => unreachable!("a place has one type of tenant"),
        }
    }

    /// Takes the tenant out.
    pub(crate) fn take(&mut self) -> Option<Box<dyn Attachment>> {
        self.0.take()
    }

    /// How many handles on an operation the tenant has.
    pub(crate) fn operation_handles(&self, op: &Arc<dyn Operation>) -> usize {
        self.0.as_ref().map_or(0, |tenant| tenant.operation_handles(op))
    }
}
