//! Inputs of a sum or product that are temporarily inactive: neither they nor their producers run.

use crate::graph::arena::{self, Arena, Ix, Saved};
use crate::graph::handles::function::Function;
use crate::{Error, Result};

/// The operations whose inputs may be inactive.
const TYPES: [&str; 2] = ["AddN", "MulN"];

impl Function {
    /// Sets the active inputs of the function. The others are ignored and get no gradient. The function must run
    /// forward again before it runs backward.
    ///
    /// # Errors
    /// [`Error::Value`] if the function is not a sum or product of any number of arrays, if the length of the mask
    /// differs from the number of inputs, or if the mask selects none. [`Error::Graph`] if the function is running.
    pub fn set_active_inputs(&self, mask: &[bool]) -> Result<()> {
        arena::with(|a| {
            a.flush();
            let (f, op) = (self.ix(), a.op(self.ix()).clone());
            if !TYPES.contains(&op.type_name()) {
                let text = format!("expected a function AddN or MulN, got {}", op.type_name());
                return Err(Error::Value(format!("set_active_input_mask: {text}")));
            }
            if a.functions[f].busy.is_some() {
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
            for ((v, was), is) in all.iter().zip(mask) {
                a.outdate(a.variables[*v].tensor);
                match (was, is) {
                    (true, false) => a.remove_consumer(*v, f),
                    (false, true) => a.add_consumer(*v, f),
                    _ => {}
                }
            }
            for o in 0..a.functions[f].outputs.len() {
                a.outdate(a.functions[f].outputs[o].tensor);
            }
            let chosen: Vec<(Ix, bool)> = all.iter().zip(mask).map(|((v, _), is)| (*v, *is)).collect();
            let slot = &mut a.functions[f];
            slot.inputs = chosen.iter().filter(|(_, is)| *is).map(|(v, _)| *v).collect();
            slot.all_inputs = mask.contains(&false).then(|| chosen.into());
            (slot.need_setup, slot.pending, slot.life) = (true, false, Saved::New);
            Ok(())
        })
    }

    /// Selects the values of the active inputs from values of all inputs.
    pub(crate) fn of_active<T: Copy>(&self, values: &[T]) -> Vec<T> {
        arena::with(|a| match &a.functions[self.ix()].all_inputs {
            Some(all) if values.len() == all.len() => {
                values.iter().zip(&**all).filter(|(_, (_, is))| *is).map(|(value, _)| *value).collect()
            }
            _ => values.to_vec(),
        })
    }
}

impl Arena {
    /// The inputs that a function was built with, and whether each is active.
    pub(crate) fn all_inputs(&self, f: Ix) -> Vec<(Ix, bool)> {
        let slot = &self.functions[f];
        match &slot.all_inputs {
            Some(all) => all.to_vec(),
            None => slot.inputs.iter().map(|v| (*v, true)).collect(),
        }
    }
}
