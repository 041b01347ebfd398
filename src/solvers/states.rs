//! The states of a solver, for saving and restoring.

use std::sync::Arc;

use super::solver::{Solver, Source};
use crate::array::{DType, Shape, Storage};
use crate::{Error, Result};

/// One named array of a parameter's states.
#[derive(Clone)]
pub struct ParameterState {
    /// Its name: `mean`.
    pub name: String,
    /// The shape of the parameter.
    pub shape: Shape,
    /// Its values.
    pub data: Arc<Storage>,
}

/// The states of one parameter.
#[derive(Clone)]
pub struct SolverState {
    /// Number of updates so far.
    pub t: u32,
    /// The arrays, in the order of the rule.
    pub pstate: Vec<ParameterState>,
}

impl<P: Source> Solver<P> {
    /// The states of all parameters by name. The arrays are shared and change with updates.
    pub fn states(&self) -> Vec<(String, SolverState)> {
        let names = self.rule.states();
        let held = self.lock();
        let states = held.parameters.iter().map(|p| {
            let pstate = names.iter().zip(&p.states).map(|(name, data)| ParameterState {
                name: (*name).to_string(),
                shape: p.shape.clone(),
                data: Arc::clone(data),
            });
            (p.name.clone(), SolverState { t: p.t, pstate: pstate.collect() })
        });
        states.collect()
    }

    /// Copies these states to the parameters of the same names. Other parameters keep theirs.
    ///
    /// # Errors
    /// [`Error::Graph`] for an unknown parameter, [`Error::Key`] if the arrays do not belong to this solver,
    /// [`Error::Shape`] if a shape differs. Nothing is changed then.
    pub fn set_states(&self, states: Vec<(String, SolverState)>) -> Result<()> {
        let op = self.op("set_states");
        let names = self.rule.states();
        let mut held = self.lock();
        let mut ready = Vec::with_capacity(states.len());
        for (key, SolverState { t, pstate }) in states {
            let Some(at) = held.find(&key) else {
                return Err(Error::Graph(format!(
                    "{op}: expected names of parameters of this solver, got '{key}'. \
                     Set weight parameter for {key} first."
                )));
            };
            if pstate.len() != names.len() || !names.iter().all(|n| pstate.iter().any(|s| s.name == *n)) {
                let got: Vec<_> = pstate.iter().map(|s| s.name.as_str()).collect();
                return Err(Error::Key(format!("{op}: expected states {names:?} for '{key}', got {got:?}")));
            }
            let mut copies = Vec::with_capacity(names.len());
            for state in names.iter().filter_map(|name| pstate.iter().find(|s| s.name == *name)) {
                let shape = &held.parameters[at].shape;
                if state.shape != *shape || state.data.len() != shape.size() {
                    let expected =
                        format!("state '{}' of '{key}' to have the parameter's shape {shape}", state.name);
                    return Err(Error::shape(op, expected, [&state.shape]));
                }
                copies.push(copy(&state.data)?);
            }
            ready.push((at, t, copies));
        }
        for (at, t, copies) in ready {
            let p = &mut held.parameters[at];
            p.t = t;
            p.states = copies.into();
        }
        Ok(())
    }
}

/// A copy of the values as float32, or float64 if they are.
fn copy(source: &Storage) -> Result<Arc<Storage>> {
    let target = Storage::new(source.len());
    let dtype = if source.dtype() == Some(DType::F64) { DType::F64 } else { DType::F32 };
    target.copy_if_changed(source, dtype)?;
    Ok(target)
}
