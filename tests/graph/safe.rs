//! Safe code with invalid arguments and concurrent threads gets errors or right numbers from arrays and graphs.

#![forbid(unsafe_code)]

use kinnor::array::{DType, Shape};
use kinnor::graph::{ForwardOptions, NdArray, Variable, apply};
use kinnor::{Error, Result};

#[test]
fn arrays_have_the_elements_of_their_shape() -> Result<()> {
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
fn freed_memory_reads_as_nan() -> Result<()> {
    let x = Variable::from_values([3], &[1.0, 2.0, 3.0])?;
    let y = apply("exp", &[&x], &[])?.remove(0);
    x.data().clear()?;
    assert!(x.data().to_vec()?.iter().all(|v| v.is_nan()));
    x.data().copy_from_slice(&[0.0; 3])?;
    y.forward(&ForwardOptions::default())?;
    assert_eq!(y.data().to_vec()?, [1.0; 3]);
    Ok(())
}

#[test]
fn readers_see_written_values_while_types_change() -> Result<()> {
    let array = NdArray::new(Shape::from([2000]))?;
    array.copy_from_slice(&[1.0; 2000])?;
    let right = || -> Result<bool> { Ok(array.to_vec()?.iter().all(|v| *v == 1.0)) };
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| -> Result<()> {
            for _ in 0..2000 {
                for dtype in [DType::I64, DType::F64, DType::F32] {
                    array.cast(dtype)?;
                    // Another thread writes memory that was freed.
                    let other = NdArray::new(Shape::from([2000]))?;
                    other.cast(dtype)?;
                    other.copy_from_slice(&[7.0; 2000])?;
                }
            }
            Ok(())
        });
        while !changes.is_finished() {
            assert!(right()?, "a value that nobody wrote");
        }
        changes.join().unwrap_or_else(|_| panic!("a change panicked"))
    })
}
