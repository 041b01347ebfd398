//! A solver's parameters, in order of registration, and the update of all of them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{StateMemory, Step, Stepper, check};
use crate::array::{Access, DType, RunGuard, Shape, Storage};
use crate::graph::settings;
use crate::kernels::stop;
use crate::kernels::update::Cells;
use crate::ops::{Spec, Value};
use crate::{Error, Result};

/// A parameter: a variable, held by reference, so that a storage assigned to it later is seen.
pub trait Source: Clone + Send + Sync {
    /// The shape of the parameter.
    fn shape(&self) -> Shape;
    /// The values of the parameter.
    fn data(&self) -> Arc<Storage>;
    /// The gradient of the parameter.
    fn grad(&self) -> Arc<Storage>;
    /// Appends the values and the gradient of each of `all` to a list.
    fn add_pairs<'a>(all: impl Iterator<Item = &'a Self>, pairs: &mut Vec<Pair>)
    where
        Self: 'a,
    {
        pairs.extend(all.map(|source| (source.data(), source.grad())));
    }
}

/// Values and gradient of a parameter.
pub type Pair = (Arc<Storage>, Arc<Storage>);

/// How `set_parameters` treats parameters that the solver already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Removes them and their states.
    Removed,
    /// Replaces a parameter of the same name and resets its states.
    Replaced,
    /// Replaces a parameter of the same name and keeps its states.
    Succeeded,
}

/// Callbacks around the work on each parameter. An error stops the work and is returned.
#[derive(Default)]
pub struct Hooks<'a> {
    /// A callback that is called before the work on each parameter.
    pub pre: Option<&'a mut dyn FnMut() -> Result<()>>,
    /// A callback that is called after the work on each parameter.
    pub post: Option<&'a mut dyn FnMut() -> Result<()>>,
}

impl Hooks<'_> {
    /// No callbacks.
    pub fn none() -> Self {
        Self::default()
    }
}

/// A parameter with its states.
pub(super) struct Parameter<P> {
    /// The name by which the user registered it.
    pub(super) name: String,
    /// The variable that holds the values and the gradient.
    pub(super) source: P,
    /// The shape at registration.
    pub(super) shape: Shape,
    /// The number of updates so far.
    pub(super) t: u32,
    /// The states, in the order of the rule's state names.
    pub(super) states: SmallVec<[Arc<Storage>; 3]>,
}

/// The mutable part of a solver.
pub(super) struct Held<P> {
    /// The current learning rate.
    rate: f64,
    /// Rate of fused decay for the next update, if one was requested.
    decay: Option<f64>,
    /// The parameters, in order of registration.
    pub(super) parameters: Vec<Parameter<P>>,
    /// The position of each parameter by its name.
    places: HashMap<String, usize>,
    /// A list that every method needs, reused to avoid allocations.
    pairs: Vec<Pair>,
}

impl<P: Source> Held<P> {
    /// Takes values and gradients of all parameters.
    fn take_pairs(&mut self) -> Vec<Pair> {
        let mut pairs = std::mem::take(&mut self.pairs);
        P::add_pairs(self.parameters.iter().map(|p| &p.source), &mut pairs);
        pairs
    }

    /// Returns the list for reuse and drops its contents.
    fn put_back(&mut self, mut pairs: Vec<Pair>) {
        pairs.clear();
        self.pairs = pairs;
    }
}

impl<P> Held<P> {
    /// The position of a parameter.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Rebuilds the index of parameters by name.
    fn number(&mut self) {
        self.places = self.parameters.iter().enumerate().map(|(i, p)| (p.name.clone(), i)).collect();
    }
}

/// An optimizer: a rule, its parameters and their states.
///
/// Methods may be called from a hook of another method: no lock is held while a hook runs.
pub struct Solver<P> {
    /// The rule of the updates.
    pub(super) rule: Box<dyn Stepper>,
    /// The learning rate at creation.
    initial_rate: f64,
    /// Parameters, states and learning rate.
    held: Mutex<Held<P>>,
}

impl<P: Source> Solver<P> {
    /// A solver without parameters. The first argument of the rule is the learning rate.
    pub(super) fn new(rule: Box<dyn Stepper>) -> Self {
        let initial_rate = match rule.values().first() {
            Some(Value::Float(rate)) => *rate,
            _ => 0.0,
        };
        let held = Held {
            rate: initial_rate,
            decay: None,
            parameters: Vec::new(),
            places: HashMap::new(),
            pairs: Vec::new(),
        };
        Self { rule, initial_rate, held: Mutex::new(held) }
    }

    /// Locks parameters and states.
    pub(super) fn lock(&self) -> MutexGuard<'_, Held<P>> {
        self.held.lock()
    }

    /// `Adam.update`, for messages.
    pub(super) fn op(&self, method: &str) -> String {
        format!("{}.{method}", self.name())
    }

    /// The name, such as `Adam`.
    pub fn name(&self) -> &'static str {
        self.rule.spec().name
    }

    /// The declaration.
    pub fn spec(&self) -> &'static Spec {
        self.rule.spec()
    }

    /// The arguments that it was made with. In NNabla's dialect, numbers are rounded to single precision.
    pub fn info(&self) -> Vec<(&'static str, Value)> {
        let seen = |v| match v {
            Value::Float(v) => Value::Float(as_seen(v)),
            other => other,
        };
        self.spec().args.iter().map(|a| a.name).zip(self.rule.values().into_iter().map(seen)).collect()
    }

    /// The learning rate. In NNabla's dialect, it is rounded to single precision.
    pub fn learning_rate(&self) -> f64 {
        as_seen(self.lock().rate)
    }

    /// Sets the learning rate of later updates.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is negative or not finite.
    pub fn set_learning_rate(&self, rate: f64) -> Result<()> {
        check(&self.op("set_learning_rate"), "learning_rate", rate)?;
        self.lock().rate = rate;
        Ok(())
    }

    /// Registers parameters to update, by name.
    ///
    /// # Errors
    /// [`Error::Shape`] if a parameter would take over states of another shape. Nothing is changed then.
    pub fn set_parameters(&self, parameters: Vec<(String, P)>, existing: Existing) -> Result<()> {
        let parameters: Vec<_> = parameters.into_iter().map(|(name, p)| (name, p.shape(), p)).collect();
        let mut held = self.lock();
        if existing == Existing::Succeeded {
            for (name, shape, _) in &parameters {
                let Some(at) = held.find(name) else { continue };
                let old = &held.parameters[at].shape;
                if old != shape {
                    let expected = format!("parameter '{name}' to have the shape {old} of its states");
                    return Err(Error::shape(self.op("set_parameters"), expected, [shape]));
                }
            }
        }
        // Replaced parameters are dropped after the lock is released.
        let mut dropped = Vec::new();
        if existing == Existing::Removed {
            dropped.append(&mut held.parameters);
            held.places.clear();
        }
        for (name, shape, source) in parameters {
            let n = shape.size();
            let states = self.rule.states().iter().map(|_| Storage::new(n)).collect();
            let mut new = Parameter { name, source, shape, t: 0, states };
            if let Some(at) = held.find(&new.name) {
                let old = &mut held.parameters[at];
                if existing == Existing::Succeeded {
                    new.t = old.t;
                    new.states = std::mem::take(&mut old.states);
                }
                dropped.push(std::mem::replace(old, new));
            } else {
                let at = held.parameters.len();
                held.places.insert(new.name.clone(), at);
                held.parameters.push(new);
            }
        }
        drop(held);
        drop(dropped);
        Ok(())
    }

    /// Forgets these parameters and their states.
    ///
    /// # Errors
    /// [`Error::Key`] for a name that it does not have, except in NNabla's dialect. Nothing is forgotten then.
    pub fn remove_parameters<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let mut held = self.lock();
        let mut gone = Vec::new();
        for name in names {
            match held.find(name) {
                Some(at) => gone.push(at),
                None if settings::is_nnabla() => {}
                None => {
                    return Err(Error::Key(format!(
                        "remove_parameters: expected names of parameters of the solver, got {name:?}"
                    )));
                }
            }
        }
        let mut dropped = Vec::new();
        for (i, p) in std::mem::take(&mut held.parameters).into_iter().enumerate() {
            if gone.contains(&i) { dropped.push(p) } else { held.parameters.push(p) }
        }
        held.number();
        drop(held);
        drop(dropped);
        Ok(())
    }

    /// Removes all parameters and their states.
    pub fn clear_parameters(&self) {
        let mut held = self.lock();
        held.places.clear();
        let dropped = std::mem::take(&mut held.parameters);
        drop(held);
        drop(dropped);
    }

    /// The parameters by name, in order of registration.
    pub fn parameters(&self) -> Vec<(String, P)> {
        self.lock().parameters.iter().map(|p| (p.name.clone(), p.source.clone())).collect()
    }

    /// Sets all gradients to zero lazily. A parameter is skipped by updates until a backward run writes its gradient.
    ///
    /// # Errors
    /// As [`Storage::zero`].
    pub fn zero_grad(&self) -> Result<()> {
        let mut held = self.lock();
        let pairs = held.take_pairs();
        let done = pairs.iter().try_for_each(|(_, grad)| grad.zero());
        held.put_back(pairs);
        done
    }

    /// True if weight decay is part of an update instead of being added to gradients.
    pub fn weight_decay_is_fused(&self) -> bool {
        self.rule.decay().is_some()
    }

    /// Updates every parameter by one step, in one pass over values, gradient and states.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Cleared`] if values, gradients and states do not fit or were cleared, and
    /// [`Error::Memory`]. Nothing is changed then, unless a hook caused it. Also errors of hooks.
    pub fn update(&self, hooks: Hooks<'_>) -> Result<()> {
        let prepare = |p: &Parameter<P>, data: &Storage, grad: &Storage| {
            data.prepare(real(data))?;
            grad.prepare(real(grad))?;
            p.states.iter().try_for_each(|state| state.prepare(precision(real(data))))
        };
        self.each("update", hooks, prepare, |held, at, data, grad| {
            let decay = held.decay.or(self.rule.decay()).unwrap_or(0.0);
            let rate = held.rate;
            let p = &mut held.parameters[at];
            let t = p.t.saturating_add(1);
            let schedule = if self.initial_rate == 0.0 { 1.0 } else { rate / self.initial_rate };
            let step = Step { rate, schedule, t: f64::from(t), decay, norms: [0.0; 2] };
            let (w, g) = (cells(data, Access::ReadWrite)?, cells(grad, Access::Read)?);
            let dtype = precision(w.dtype());
            let mut states: SmallVec<[*mut u8; 3]> = SmallVec::new();
            for state in &p.states {
                states.push(state.access(dtype, Access::ReadWrite)?);
            }
            // SAFETY: all have as many elements (checked by `each`), and the run guard keeps them allocated.
            let memory = unsafe { StateMemory::new(data.len(), g, w, &states, dtype) };
            self.rule.step(step, &memory);
            p.states.iter().map(|state| &**state).chain([data]).for_each(Storage::wrote);
            p.t = t;
            Ok(true)
        })?;
        self.lock().decay = None;
        Ok(())
    }

    /// Adds `rate` times the values to the gradients. If decay is fused, the next update uses this rate instead.
    ///
    /// # Errors
    /// [`Error::Argument`] if the rate is negative or not finite; otherwise as [`Solver::update`].
    pub fn weight_decay(&self, rate: f64, hooks: Hooks<'_>) -> Result<()> {
        check(&self.op("weight_decay"), "decay_rate", rate)?;
        if self.weight_decay_is_fused() {
            self.lock().decay = Some(rate);
            return Ok(());
        }
        if rate == 0.0 {
            return Ok(());
        }
        self.add_to_gradients(rate, hooks)
    }

    /// Checks that values, gradient and states of a parameter fit together.
    fn check_parameter(&self, method: &str, p: &Parameter<P>, (data, grad): &Pair) -> Result<()> {
        let n = p.shape.size();
        if data.len() != n || grad.len() != n {
            let expected = format!("parameter '{}' to have the shape {} of its states", p.name, p.shape);
            return Err(Error::shape(self.op(method), expected, [&p.source.shape()]));
        }
        for (what, storage) in [("values", data), ("gradient", grad)] {
            if storage.is_cleared() {
                return Err(Error::Cleared(format!(
                    "{}: expected parameter '{}' with a {what} to read, got one whose memory was cleared",
                    self.op(method),
                    p.name
                )));
            }
        }
        Ok(())
    }

    /// Calls `act` with the values and the gradient of each parameter that has a gradient, with hooks around it,
    /// until it returns false. Checks all parameters before the first call. `prepare` does everything that may fail.
    pub(super) fn each(
        &self,
        method: &str,
        mut hooks: Hooks<'_>,
        prepare: impl Fn(&Parameter<P>, &Storage, &Storage) -> Result<()>,
        mut act: impl FnMut(&mut Held<P>, usize, &Storage, &Storage) -> Result<bool>,
    ) -> Result<()> {
        let _run = RunGuard::new();
        let mut held = self.lock();
        if held.parameters.is_empty() && method == "update" && !settings::is_nnabla() {
            let text = "expected parameters, got none; call set_parameters first";
            return Err(Error::Graph(format!("{}: {text}", self.op(method))));
        }
        let pairs = held.take_pairs();
        let with_gradients = || pairs.iter().enumerate().filter(|(_, (_, grad))| has_gradient(grad));
        let mut done = with_gradients().try_for_each(|(at, pair)| {
            let p = &held.parameters[at];
            self.check_parameter(method, p, pair)?;
            prepare(p, &pair.0, &pair.1)
        });
        let hooked = hooks.pre.is_some() || hooks.post.is_some();
        if !hooked && done.is_ok() {
            done = stop::unasked(|| {
                for (at, (data, grad)) in with_gradients() {
                    if !act(&mut held, at, data, grad)? {
                        break;
                    }
                }
                Ok(())
            });
        }
        held.put_back(pairs);
        drop(held);
        if !hooked || done.is_err() {
            return done;
        }
        for at in 0.. {
            match self.lock().parameters.get(at) {
                None => break,
                Some(p) if !has_gradient(&p.source.grad()) => continue,
                Some(_) => {}
            }
            if let Some(pre) = &mut hooks.pre {
                pre()?;
            }
            let mut held = self.lock();
            // The hook may have removed or replaced the parameter.
            let Some(p) = held.parameters.get(at) else { break };
            let pair = (p.source.data(), p.source.grad());
            self.check_parameter(method, p, &pair)?;
            let go_on = stop::unasked(|| act(&mut held, at, &pair.0, &pair.1))?;
            drop(held);
            if let Some(post) = &mut hooks.post {
                post()?;
            }
            if !go_on {
                break;
            }
        }
        Ok(())
    }
}

/// True if a gradient was written since `zero_grad()`. Reading the gradient writes none, except for
/// programs of NNabla.
fn has_gradient(grad: &Storage) -> bool {
    if settings::is_nnabla() { !grad.is_zeroing() } else { !grad.is_still_zeroed() }
}

/// The number as callers see it: in NNabla's dialect, rounded to single precision.
fn as_seen(v: f64) -> f64 {
    if settings::is_nnabla() { f64::from(v as f32) } else { v }
}

/// The element type if it is a floating-point type, else `f32`.
pub(super) fn real(storage: &Storage) -> DType {
    storage.dtype().filter(|d| d.is_float()).unwrap_or(DType::F32)
}

/// The type in which to compute with elements of `dtype`.
fn precision(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The elements as their [`real`] type, valid under the run guard of [`Solver::each`] for one call.
pub(super) fn cells(storage: &Storage, access: Access) -> Result<Cells> {
    let dtype = real(storage);
    let ptr = storage.access(dtype, access)?;
    // SAFETY: the storage knows its length, and the run guard keeps the elements allocated.
    Ok(unsafe { Cells::new(ptr, dtype, storage.len()) })
}
