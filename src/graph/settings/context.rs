//! Contexts: the device and precision in which functions compute.

use crate::Error;
use crate::Result;
use crate::array::DType;
use crate::ops::Op;
use crate::ops::contract::dialect;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The contexts of the process.
static CONTEXTS: RwLock<Contexts> =
    RwLock::new(Contexts { all: Vec::new(), numbers: BTreeMap::new(), wide: BTreeMap::new() });

/// The types in which a function computes and stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// `f32` throughout.
    #[default]
    Float,
    /// `f64` throughout.
    Double,
    /// Stores `f16`, computes in `f32`.
    Half,
    /// Stores `bf16`, computes in `f32`.
    BFloat16,
}

impl Precision {
    /// The type in which kernels compute.
    pub fn dtype(self) -> DType {
        if self == Self::Double { DType::F64 } else { DType::F32 }
    }

    /// The type in which elements are stored.
    pub fn stored(self) -> DType {
        match self {
            Self::Float => DType::F32,
            Self::Double => DType::F64,
            Self::Half => DType::F16,
            Self::BFloat16 => DType::BF16,
        }
    }

    /// The precision in which the rule of an operation is computed. Only its results are rounded to 16 bits, as in a
    /// kernel, so that rule and kernel overflow at the same numbers.
    ///
    /// Not for operations that multiply in bfloat16, as the kernels of their gradients do.
    pub(crate) fn of_rule(self, op: &Op) -> Self {
        match self {
            Self::BFloat16 if op.facts().in_bfloat16 != 0 => self,
            Self::Half | Self::BFloat16 => Self::Float,
            Self::Float | Self::Double => self,
        }
    }

    /// The type to which functions round their inputs, and fused functions round between their layers, as NNabla's
    /// kernels do. None natively, where only outputs are rounded.
    pub(crate) fn rounds(self) -> Option<DType> {
        (self.stored() != self.dtype() && dialect::is_nnabla()).then(|| self.stored())
    }
}

/// The device and precision of functions: NNabla's context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context {
    /// Backends as `"<engine>:<type>"`. The first one that exists is used.
    pub backend: Vec<String>,
    /// The kind of array. Ignored.
    pub array_class: String,
    /// The device. Ignored.
    pub device_id: String,
    /// The precision that follows from `backend`.
    pub compute: Precision,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            backend: vec!["cpu:float".into()],
            array_class: String::new(),
            device_id: "0".into(),
            compute: Precision::Float,
        }
    }
}

/// All contexts used so far. A function stores the number of its context.
struct Contexts {
    /// All contexts. The position of a context is its number.
    all: Vec<Arc<Context>>,
    /// The number of each context.
    numbers: BTreeMap<Arc<Context>, u16>,
    /// The numbers that [`widened`] found so far.
    wide: BTreeMap<u16, u16>,
}

/// The number of a context. Equal contexts have the same number.
///
/// # Errors
/// [`Error::Value`] if there are too many contexts.
pub fn intern(context: &Context) -> Result<u16> {
    if *context == Context::default() {
        return Ok(0);
    }
    if let Some(number) = CONTEXTS.read().numbers.get(context) {
        return Ok(*number);
    }
    let Contexts { all, numbers, .. } = &mut *CONTEXTS.write();
    if all.is_empty() {
        all.push(Arc::default());
    }
    let new = u16::try_from(all.len()).map_err(|_| {
        let most = usize::from(u16::MAX) + 1;
        Error::Value(format!("context: expected at most {most} different ones in a process, got another"))
    })?;
    let context = Arc::new(context.clone());
    all.push(Arc::clone(&context));
    Ok(*numbers.entry(context).or_insert(new))
}

/// The context with this number.
pub fn context(number: u16) -> Context {
    CONTEXTS.read().all.get(number as usize).map_or_else(Context::default, |context| (**context).clone())
}

/// The number of the context that differs from this one only in that it computes and stores `f32`.
///
/// # Errors
/// As [`intern`].
pub(crate) fn widened(number: u16) -> Result<u16> {
    if let Some(wide) = CONTEXTS.read().wide.get(&number) {
        return Ok(*wide);
    }
    let mut wide = context(number);
    for backend in &mut wide.backend {
        let engine = backend.split(':').next().unwrap_or_default();
        *backend = format!("{engine}:float");
    }
    let wide = intern(&Context { compute: Precision::Float, ..wide })?;
    CONTEXTS.write().wide.insert(number, wide);
    Ok(wide)
}

/// The precision of a context.
pub(crate) fn precision(number: u16) -> Precision {
    let of = |contexts: &Contexts| contexts.all.get(number as usize).map(|context| context.compute);
    if number == 0 { Precision::Float } else { of(&CONTEXTS.read()).unwrap_or_default() }
}
