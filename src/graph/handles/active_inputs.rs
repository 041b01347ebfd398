//! Inputs of a sum or product that are temporarily inactive: neither they nor their producers run.

use crate::graph::arena;
use crate::graph::handles::function::Function;
use crate::{Error, Result};

/// The operations whose inputs may be inactive.
const TYPES: [&str; 2] = ["AddN", "MulN"];

impl Function {
    /// Sets the active inputs of the function. The others are ignored and get no gradient. The function must run
    /// forward again before it runs backward.
    ///
    /// # Errors
    /// [`Error::Value`] if the function is not a sum or product of any number of arrays. Also if the mask selects no
    /// input, or its length differs from the number of inputs. [`Error::Graph`] if the function is running.
    pub fn set_active_inputs(&self, mask: &[bool]) -> Result<()> {
        arena::with(|a| {
            let (f, op) = (self.ix(), a.op(self.ix()).clone());
            if !TYPES.contains(&op.type_name()) {
                let text = format!("expected a function AddN or MulN, got {}", op.type_name());
                return Err(Error::Value(format!("set_active_input_mask: {text}")));
            }
            if a.is_busy(f) {
                let text =
                    "set_active_input_mask: expected a function that is not being run, got one that is";
                return Err(Error::Graph(text.into()));
            }
            let all = a.all_inputs(f);
            if mask.len() != all.len() || !mask.contains(&true) {
                let expected = format!("a mask of {} with one True at least", all.len());
                return Err(Error::Value(format!(
                    "set_active_input_mask: expected {expected}, got {mask:?}"
                )));
            }
            a.set_active_inputs(f, mask);
            Ok(())
        })
    }

    /// Selects the values of the active inputs from values of all inputs.
    pub(crate) fn of_active<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let all = arena::with(|a| a.all_inputs(self.ix()));
        if values.len() != all.len() {
            return values.to_vec();
        }
        values.iter().zip(all).filter(|(_, (_, is))| *is).map(|(value, _)| *value).collect()
    }
}
