//! The declaration of an operation: name, inputs, arguments and documentation.

use std::fmt;

use crate::{Error, Result};

/// Everything that is known about an operation before it is called.
pub struct Spec {
    /// Name of the function in Python: `leaky_relu`.
    pub name: &'static str,
    /// Name of the type, shown by `info.type_name`: `LeakyReLU`.
    pub type_name: &'static str,
    /// Doc comment as written, with one leading space per line.
    pub raw_doc: &'static str,
    /// Array inputs, in order.
    pub inputs: &'static [Input],
    /// Constant arguments, in order.
    pub args: &'static [Arg],
}

impl Spec {
    /// The documentation as a docstring.
    ///
    /// Examples are in Python. Their fences, which keep rustdoc from reading them as Rust or as links, are left out.
    pub fn doc(&self) -> String {
        let lines = self.raw_doc.lines().map(|l| l.strip_prefix(' ').unwrap_or(l).trim_end());
        let lines: Vec<_> = lines.filter(|line| !line.starts_with("```")).collect();
        lines.join("\n").trim_end().to_string()
    }
}

/// One array input.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Name in Python.
    pub name: &'static str,
    /// The kind of array it accepts.
    pub kind: Kind,
}

/// The kind of an input, which determines the type in which its elements are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)] // as written in `op!`
pub enum Kind {
    /// Real numbers of the type in which the function computes.
    float,
    /// As `float`, but optional.
    optional,
    /// Whole numbers, read as `i64`. Never differentiated.
    index,
    /// 8-bit levels, read as `u8`. Never differentiated.
    uint8,
    /// Signed levels of 8 bits, read as `i8`. Never differentiated.
    int8,
    /// Any number of `float` inputs. Must be the last input.
    list,
}

impl Kind {
    /// True if it accepts whole numbers.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::index | Self::uint8 | Self::int8)
    }
}

/// A constant argument.
pub struct Arg {
    /// Name in Python.
    pub name: &'static str,
    /// Name in `info.args`, as in NNabla.
    pub info: &'static str,
    /// Annotation in Python.
    pub py_type: &'static str,
    /// The default value. `None` if the argument is required.
    pub default: Option<fn() -> Value>,
}

/// The value of a constant argument, passed from Python.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// Whole numbers, such as a shape or axes.
    Ints(Vec<i64>),
    /// Whole numbers. Some may be left open.
    Bounds(Vec<Option<i64>>),
    /// Real numbers.
    Floats(Vec<f64>),
    /// A word.
    Str(String),
}

/// As Python writes it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Writes a tuple in Python's syntax.
        fn tuple<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, v: &[T]) -> fmt::Result {
            match v {
                [one] => write!(f, "({one:?},)"),
                _ => write!(f, "({})", v.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ")),
            }
        }
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(v) => f.write_str(if *v { "True" } else { "False" }),
            Self::Int(v) => write!(f, "{v}"),
            Self::Float(v) => write!(f, "{v:?}"),
            Self::Ints(v) => tuple(f, v),
            Self::Bounds(v) => {
                let shown = v.iter().map(|v| v.map_or("None".into(), |v| v.to_string()));
                let comma = if v.len() == 1 { "," } else { "" };
                write!(f, "({}{comma})", shown.collect::<Vec<_>>().join(", "))
            }
            Self::Floats(v) => tuple(f, v),
            Self::Str(v) => write!(f, "'{v}'"),
        }
    }
}

/// A Rust type of an argument.
pub trait ArgType: Sized + Clone {
    /// Its Python annotation.
    const PY_TYPE: &'static str;
    /// A description of the accepted values.
    const WORDS: &'static str;
    /// Converts `v`, if it is of this type.
    fn read(v: &Value) -> Option<Self>;
    /// Converts to a value.
    fn write(self) -> Value;
}

/// The whole number equal to a real one, such as `16 / 2` in Python.
pub(crate) fn integer(v: f64) -> Option<i64> {
    /// All whole numbers up to this one are exact in double precision.
    const MOST: f64 = 9_007_199_254_740_992.0;
    (v.fract() == 0.0 && v.abs() <= MOST).then_some(v as i64)
}

/// Implements [`ArgType`] for a type, with the values that are read as such.
macro_rules! arg_type {
    ($rust:ty, $py:literal, $words:literal, $variant:ident, $($pattern:pat => $read:expr),+) => {
        impl ArgType for $rust {
            const PY_TYPE: &'static str = $py;
            const WORDS: &'static str = $words;
            fn read(v: &Value) -> Option<Self> {
                match v {
                    $($pattern => Some($read),)+
                    _ => None,
                }
            }
            fn write(self) -> Value {
                Value::$variant(self)
            }
        }
    };
}
arg_type!(bool, "bool", "True or False", Bool, Value::Bool(v) => *v, Value::Int(v @ (0 | 1)) => *v == 1);
arg_type!(i64, "int", "an integer", Int, Value::Int(v) => *v, Value::Bool(v) => i64::from(*v),
    Value::Float(v) => integer(*v)?);
arg_type!(f64, "float", "a number", Float, Value::Float(v) => *v, Value::Int(v) => *v as f64,
    Value::Bool(v) => f64::from(u8::from(*v)));
arg_type!(Vec<i64>, "int | Sequence[int]", "an integer or several", Ints, Value::Ints(v) => v.clone(),
    Value::Int(v) => vec![*v], Value::Float(v) => vec![integer(*v)?],
    Value::Floats(v) => v.iter().map(|v| integer(*v)).collect::<Option<_>>()?);
arg_type!(Vec<f64>, "float | Sequence[float]", "a number or several", Floats, Value::Floats(v) => v.clone(),
    Value::Float(v) => vec![*v], Value::Int(v) => vec![*v as f64],
    Value::Ints(v) => v.iter().map(|v| *v as f64).collect());
arg_type!(Vec<Option<i64>>, "int | Sequence[int | None]", "an integer, or several or None", Bounds,
    Value::Bounds(v) => v.clone(), Value::Ints(v) => v.iter().copied().map(Some).collect(),
    Value::Int(v) => vec![Some(*v)], Value::Float(v) => vec![Some(integer(*v)?)],
    Value::Floats(v) => v.iter().map(|v| integer(*v).map(Some)).collect::<Option<_>>()?);
arg_type!(String, "str", "a string", Str, Value::Str(v) => v.clone());

/// Implements [`ArgType`] for an optional type, which is None for an argument that was left out.
macro_rules! optional {
    ($($rust:ty, $py:literal, $words:literal;)+) => {$(
        impl ArgType for Option<$rust> {
            const PY_TYPE: &'static str = $py;
            const WORDS: &'static str = $words;
            fn read(v: &Value) -> Option<Self> {
                match v {
                    Value::None => Some(None),
                    v => <$rust>::read(v).map(Some),
                }
            }
            fn write(self) -> Value {
                self.map_or(Value::None, <$rust>::write)
            }
        }
    )+};
}
optional! {
    bool, "bool | None", "True, False or None";
    i64, "int | None", "an integer or None";
    f64, "float | None", "a number or None";
    Vec<i64>, "int | Sequence[int] | None", "an integer, several or None";
    Vec<Option<i64>>, "int | Sequence[int | None] | None", "integers or None for each axis, or None";
    Vec<f64>, "float | Sequence[float] | None", "a number, several or None";
}

/// A struct declared by `op!`, with one field per constant argument.
pub trait Declared: Sized + Clone + Send + Sync + 'static {
    /// The declaration.
    const SPEC: Spec;
    /// Binds the arguments.
    ///
    /// # Errors
    /// [`Error::Argument`] if a value has the wrong type.
    fn bind(values: &[Value]) -> Result<Self>;
    /// The arguments, in order.
    fn values(&self) -> Vec<Value>;
}

/// Reads one argument for [`op!`].
pub(crate) fn read<T: ArgType>(op: &'static str, arg: &str, v: Option<&Value>) -> Result<T> {
    let v = v.unwrap_or(&Value::None);
    T::read(v).ok_or_else(|| Error::argument(op, arg, T::WORDS, v))
}

/// The default of an argument for [`op!`], if any.
macro_rules! default {
    ($ty:ty) => {
        None
    };
    ($ty:ty, $default:expr) => {
        Some(|| $crate::ops::contract::spec::ArgType::write(<$ty>::from($default)))
    };
}
pub(crate) use default;

/// The kind of an input for [`op!`].
macro_rules! kind {
    () => {
        $crate::ops::contract::spec::Kind::float
    };
    ($kind:ident) => {
        $crate::ops::contract::spec::Kind::$kind
    };
}
pub(crate) use kind;

/// The name of an argument in `info.args` for [`op!`].
macro_rules! info_name {
    ($arg:ident) => {
        stringify!($arg)
    };
    ($arg:ident $info:ident) => {
        stringify!($info)
    };
}
pub(crate) use info_name;

/// Declares an operation: `Type = name(inputs; arguments)`. Its doc comment is the docstring.
///
/// An input is `name` or `name: kind` with a [`Kind`]. An argument is `name: type` or `name: type = default`, with
/// `as other_name` before the colon if its name in NNabla's `info.args` differs.
macro_rules! op {
    (
        $(#[doc = $doc:literal])+
        $ty:ident = $name:ident(
            $($input:ident $(: $kind:ident)?),* $(,)?
            $(; $($arg:ident $(as $info:ident)?: $arg_ty:ty $(= $default:expr)?),+ $(,)?)?
        )
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub struct $ty {
            $($(
                #[doc = concat!("Argument `", stringify!($arg), "`.")]
                pub $arg: $arg_ty,
            )+)?
        }

        impl $crate::ops::Declared for $ty {
            const SPEC: $crate::ops::Spec = $crate::ops::Spec {
                name: stringify!($name),
                type_name: stringify!($ty),
                raw_doc: concat!($($doc, "\n"),+),
                inputs: &[$($crate::ops::Input {
                    name: stringify!($input),
                    kind: $crate::ops::contract::spec::kind!($($kind)?),
                }),*],
                args: &[$($($crate::ops::Arg {
                    name: stringify!($arg),
                    info: $crate::ops::contract::spec::info_name!($arg $($info)?),
                    py_type: <$arg_ty as $crate::ops::ArgType>::PY_TYPE,
                    default: $crate::ops::contract::spec::default!($arg_ty $(, $default)?),
                }),+)?],
            };

            #[allow(unused)]
            fn bind(values: &[$crate::ops::Value]) -> $crate::Result<Self> {
                let mut values = values.iter();
                Ok(Self {
                    $($(
                        $arg: $crate::ops::contract::spec::read(
                            stringify!($name),
                            stringify!($arg),
                            values.next(),
                        )?,
                    )+)?
                })
            }

            fn values(&self) -> Vec<$crate::ops::Value> {
                vec![$($($crate::ops::ArgType::write(self.$arg.clone())),+)?]
            }
        }
    };
}
pub(crate) use op;
