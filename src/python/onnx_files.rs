//! Splits ONNX files into a message without large tensors and the places of these tensors, for `kinnor.onnx`.
//!
//! Knows the wire format of protobuf and five fields; knows no operators and no values.

use std::ops::Range;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};

/// The numbers of `ModelProto.graph`, `GraphProto.node`, `GraphProto.initializer` and `TensorProto.raw_data`.
const GRAPH: u64 = 7;
const NODE: u64 = 1;
const INITIALIZER: u64 = 5;
const RAW: u64 = 9;

/// Number of bytes that are read together.
const BLOCK: u64 = 1 << 16;

/// The most bytes of two numbers, as at the start of a field.
const MOST_HEAD: u64 = 20;

/// The index of a tensor in its list, and start and end of its bytes in the file.
type TensorPlace = (usize, u64, u64);

/// A field of a message.
struct Field {
    /// Its number. 0 if it is not bytes.
    number: u64,
    /// Its bytes with tag and length.
    whole: Range<u64>,
    /// Its bytes.
    content: Range<u64>,
}

/// The bytes of a file as a Python sequence, which is read in blocks.
struct Reader<'py> {
    content: Bound<'py, PyAny>,
    size: u64,
    block: Bound<'py, PyBytes>,
    /// The position of the first byte of the block.
    base: u64,
}

impl<'py> Reader<'py> {
    fn new(content: Bound<'py, PyAny>) -> PyResult<Self> {
        let (size, block) = (content.len()? as u64, PyBytes::new(content.py(), &[]));
        Ok(Reader { content, size, block, base: 0 })
    }

    /// Reads bytes of the file.
    fn read(&self, range: &Range<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let py = self.content.py();
        let slice = PySlice::new(py, range.start.try_into()?, range.end.try_into()?, 1);
        Ok(self.content.call_method1(intern!(py, "__getitem__"), (slice,))?.cast_into()?)
    }

    /// Returns the bytes of a range that are in the current block, unless some are not.
    fn in_block(&self, range: &Range<u64>) -> Option<&[u8]> {
        let start = usize::try_from(range.start.checked_sub(self.base)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.base)?).ok()?;
        self.block.as_bytes().get(start..end)
    }

    /// Appends bytes of the file to a message.
    fn copy(&self, range: &Range<u64>, message: &mut Vec<u8>) -> PyResult<()> {
        match self.in_block(range) {
            Some(bytes) => message.extend_from_slice(bytes),
            None => message.extend_from_slice(self.read(range)?.as_bytes()),
        }
        Ok(())
    }

    /// Decodes a varint, and moves the position behind it.
    fn number(&self, at: &mut u64) -> PyResult<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let Some(&[byte]) = self.in_block(&(*at..*at + 1)) else {
                return Err(PyIndexError::new_err("expected a number, got the end of the bytes"));
            };
            value |= u64::from(byte & 127) << shift;
            *at += 1;
            if byte < 128 || shift == 63 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Takes the next field of a message from a range, or None at the end.
    ///
    /// # Errors
    /// `ValueError` if the field is longer than the message. `IndexError` if the bytes end within a number.
    fn field(&mut self, message: &mut Range<u64>) -> PyResult<Option<Field>> {
        let Range { start: begin, end } = *message;
        if begin >= end {
            return Ok(None);
        }
        if self.in_block(&(begin..begin + MOST_HEAD)).is_none() {
            self.block = self.read(&(begin..(begin + BLOCK).min(end + MOST_HEAD).min(self.size)))?;
            self.base = begin;
        }
        let mut start = begin;
        let key = self.number(&mut start)?;
        let stop = match key & 7 {
            0 => {
                let mut stop = start;
                self.number(&mut stop)?;
                stop
            }
            1 => start + 8,
            2 => self.number(&mut start)?.saturating_add(start),
            5 => start + 4,
            _ => end, // groups, which ONNX does not use, are left to the parser
        };
        if stop > end {
            return Err(PyValueError::new_err(format!(
                "expected a field that ends at {end}, got one up to {stop}"
            )));
        }
        message.start = stop;
        let number = if key & 7 == 2 { key >> 3 } else { 0 };
        Ok(Some(Field { number, whole: begin..stop, content: start..stop }))
    }

    /// The tensor at a range without its bytes, and their place. None unless it has them in one piece.
    fn without_bytes(&mut self, mut tensor: Range<u64>) -> PyResult<Option<(Vec<u8>, Range<u64>)>> {
        let (mut message, mut place) = (Vec::new(), None);
        while let Some(field) = self.field(&mut tensor)? {
            if field.number != RAW {
                self.copy(&field.whole, &mut message)?;
            } else if place.replace(field.content).is_some() {
                return Ok(None);
            }
        }
        Ok(place.map(|place| (message, place)))
    }
}

/// Appends a field of bytes to a message.
fn put(number: u64, content: &[u8], message: &mut Vec<u8>) {
    for mut value in [number << 3 | 2, content.len() as u64] {
        while value > 127 {
            message.push(value as u8 | 128);
            value >>= 7;
        }
        message.push(value as u8);
    }
    message.extend_from_slice(content);
}

/// Reads an ONNX file without the bytes of large initializers.
///
/// Args:
///     content: The bytes of the file: a sequence, which is read in blocks.
///     least: Initializers of more bytes are large.
///     most: The most nodes to read.
///
/// Returns:
///     The message, the place of each large initializer's bytes (index of the initializer, start and end in the file),
///     and the count of nodes. Reading ends after the first node above the limit.
///
/// Raises:
///     ValueError: If a field is longer than the message that it is in.
///     IndexError: If the bytes end within a number.
#[pyfunction]
fn read_onnx(
    content: Bound<'_, PyAny>,
    least: u64,
    most: usize,
) -> PyResult<(Bound<'_, PyBytes>, Vec<TensorPlace>, usize)> {
    let py = content.py();
    let mut reader = Reader::new(content)?;
    let (mut model, mut places, mut n_nodes, mut n_tensors) = (Vec::new(), Vec::new(), 0, 0);
    let mut whole = 0..reader.size;
    while n_nodes <= most
        && let Some(mut part) = reader.field(&mut whole)?
    {
        if part.number != GRAPH {
            reader.copy(&part.whole, &mut model)?;
            continue;
        }
        let mut graph = Vec::new();
        while n_nodes <= most
            && let Some(field) = reader.field(&mut part.content)?
        {
            n_nodes += usize::from(field.number == NODE);
            let is_tensor = field.number == INITIALIZER;
            let is_large = is_tensor && field.content.end - field.content.start > least;
            match if is_large { reader.without_bytes(field.content)? } else { None } {
                Some((tensor, place)) => {
                    put(INITIALIZER, &tensor, &mut graph);
                    places.push((n_tensors, place.start, place.end));
                }
                None => reader.copy(&field.whole, &mut graph)?,
            }
            n_tensors += usize::from(is_tensor);
        }
        put(GRAPH, &graph, &mut model);
    }
    Ok((PyBytes::new(py, &model), places, n_nodes))
}

/// Counts the nodes of an ONNX file.
///
/// Args:
///     content: The bytes of the file.
///     most: The most nodes to count.
///
/// Raises:
///     ValueError: As of `read_onnx`.
///     IndexError: As of `read_onnx`.
#[pyfunction]
fn count_onnx_nodes(content: Bound<'_, PyBytes>, most: usize) -> PyResult<usize> {
    let mut reader = Reader::new(content.into_any())?;
    let (mut n_nodes, mut whole) = (0, 0..reader.size);
    while let Some(mut part) = reader.field(&mut whole)? {
        while part.number == GRAPH
            && n_nodes <= most
            && let Some(field) = reader.field(&mut part.content)?
        {
            n_nodes += usize::from(field.number == NODE);
        }
    }
    Ok(n_nodes)
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_onnx, m)?)?;
    m.add_function(wrap_pyfunction!(count_onnx_nodes, m)?)
}
