//! What safe code can do to arrays and graphs, from several threads and with nonsense: it gets errors or right numbers.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use kinnor::array::{DType, Shape};
use kinnor::graph::{ForwardOptions, NdArray, Variable, apply};
use kinnor::{Error, Result};

#[test]
fn an_array_has_as_many_elements_as_its_shape_says() -> Result<()> {
    let array = NdArray::new(Shape::from([1 << 10]))?;
    assert_eq!(array.to_vec()?, vec![0.0; 1 << 10]);
    assert!(matches!(array.copy_from_slice(&[1.0; 3]), Err(Error::Shape { .. })));
    assert!(matches!(NdArray::new(Shape::from([usize::MAX, 2])), Err(Error::Memory { .. })));
    let variable = Variable::new([1 << 12])?;
    assert!(variable.set_data(&array).is_err());
    assert_eq!(variable.data().to_vec()?.len(), 1 << 12);
    Ok(())
}

#[test]
fn memory_that_was_given_back_is_not_read() -> Result<()> {
    let x = Variable::from_values([3], &[1.0, 2.0, 3.0])?;
    let y = apply("exp", &[&x], &[])?.remove(0);
    x.data().clear()?;
    assert!(matches!(x.data().to_vec(), Err(Error::Cleared(_))));
    assert!(matches!(y.forward(&ForwardOptions::default()), Err(Error::Cleared(_))));
    x.data().copy_from_slice(&[0.0; 3])?;
    y.forward(&ForwardOptions::default())?;
    assert_eq!(y.data().to_vec()?, [1.0; 3]);
    Ok(())
}

#[test]
fn a_reader_sees_values_that_were_written_while_types_change() -> Result<()> {
    let array = NdArray::new(Shape::from([2000]))?;
    array.copy_from_slice(&[1.0; 2000])?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| -> Result<()> {
            for _ in 0..2000 {
                for dtype in [DType::I64, DType::F64, DType::F32] {
                    array.cast(dtype)?;
                    let other = NdArray::new(Shape::from([2000]))?;
                    other.cast(dtype)?;
                    other.copy_from_slice(&[7.0; 2000])?;
                }
            }
            Ok(())
        });
        while !changes.is_finished() && !stop.load(Ordering::Relaxed) {
            let values = array.to_vec();
            stop.store(!values.is_ok_and(|v| v.iter().all(|v| *v == 1.0)), Ordering::Relaxed);
        }
        changes.join().expect("does not panic")
    })?;
    assert!(!stop.into_inner(), "a value that nobody wrote");
    Ok(())
}
