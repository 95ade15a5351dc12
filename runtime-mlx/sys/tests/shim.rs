//! The shim against numbers worked out by hand.

use mlxcel_mlx_sys::custom::{Input, Kernel, Output, custom};
use mlxcel_mlx_sys::{Array, Binary, Dtype, Error, Stream, async_eval, eval, memory, ops};
use std::sync::Arc;

fn array(values: &[f32], shape: &[i32]) -> Array {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    Array::from_bytes(&bytes, shape, Dtype::F32).unwrap()
}

fn values(array: &Array) -> Result<Vec<f32>, Error> {
    array.wait()?;
    let bytes = array.bytes()?.chunks_exact(4);
    Ok(bytes
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect())
}

#[test]
fn adds_two_arrays() {
    let stream = Stream::cpu().unwrap();
    let (a, b) = (array(&[1.0, 2.0], &[2]), array(&[10.0, 20.0], &[2]));
    let sum = ops::binary(Binary::Add, &a, &b, &stream).unwrap();
    assert_eq!(values(&sum), Ok(vec![11.0, 22.0]));
    assert_eq!(sum.shape(), [2]);
    assert_eq!(sum.dtype(), Ok(Dtype::F32));
}

#[test]
fn a_stream_moves_between_threads() {
    let stream = Stream::cpu().unwrap();
    let a = array(&[1.0, 2.0], &[2]);
    let sum = ops::binary(Binary::Add, &a, &a, &stream).unwrap();
    async_eval([&sum]).unwrap();
    let sum = std::thread::spawn(move || {
        let sum = ops::binary(Binary::Add, &sum, &a, &stream).unwrap();
        assert_eq!(values(&sum), Ok(vec![3.0, 6.0]));
        ops::binary(Binary::Add, &sum, &a, &stream).unwrap()
    });
    assert_eq!(values(&sum.join().unwrap()), Ok(vec![4.0, 8.0]));
}

#[test]
fn what_mlx_throws_is_an_error() {
    let stream = Stream::cpu().unwrap();
    let (a, b) = (array(&[1.0, 2.0], &[2]), array(&[1.0, 2.0, 3.0], &[3]));
    let error = ops::binary(Binary::Add, &a, &b, &stream).unwrap_err();
    assert!(error.0.contains("broadcast"), "{error}");
    assert!(Array::from_bytes(&[0; 7], &[2], Dtype::F32).is_err());
    assert!(Array::from_bytes(&[0; 8], &[-2], Dtype::F32).is_err());
    let lazy = ops::binary(Binary::Add, &a, &a, &stream).unwrap();
    assert!(lazy.bytes().is_err());
}

#[test]
fn memory_of_rust_is_used_where_it_lies() {
    let stream = Stream::cpu().unwrap();
    let numbers: Arc<Vec<f32>> = Arc::new((0..6).map(|n| n as f32).collect());
    // SAFETY: plain numbers seen as bytes.
    let bytes = unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast::<u8>(), 24) };
    // SAFETY: the array holds a clone of the vector's owner, and nothing changes the vector.
    let borrowed = unsafe { memory::borrowed(bytes, &[2, 3], Dtype::F32, numbers.clone()) };
    let borrowed = borrowed.unwrap();
    assert_eq!(borrowed.bytes().unwrap().as_ptr(), bytes.as_ptr());
    assert_eq!(Arc::strong_count(&numbers), 2);
    let twice = ops::binary(Binary::Add, &borrowed, &borrowed, &stream).unwrap();
    assert_eq!(values(&twice), Ok(vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]));
    drop((borrowed, twice));
    assert_eq!(Arc::strong_count(&numbers), 1);
    // SAFETY: as above.
    let odd = unsafe { memory::borrowed(&bytes[2..6], &[1], Dtype::F32, ()) };
    assert!(odd.unwrap_err().0.contains("aligned"));
}

struct Split(f32);

/// Halves of the input's sum and the number of its rows.
impl Kernel for Split {
    fn run(&self, inputs: &[Input<'_>], outputs: &mut [Output<'_>]) -> Result<(), String> {
        let x = inputs[0].elements::<f32>()?;
        if x[0] < 0.0 {
            return Err("negative".into());
        }
        assert!(x[0] < 100.0, "too large: {}", x[0]);
        let [first, second] = outputs else {
            return Err("two outputs".into());
        };
        for (out, &x) in first.elements::<f32>()?.iter_mut().zip(x) {
            *out = x * self.0;
        }
        second.elements::<i32>()?[0] = inputs[0].shape()[0];
        Ok(())
    }
}

fn split(x: &Array, stream: &Stream) -> Result<(Vec<f32>, Vec<u8>), Error> {
    let outputs: [(&[i32], Dtype); 2] = [(x.shape(), Dtype::F32), (&[1], Dtype::I32)];
    let results = custom("split", Arc::new(Split(2.0)), [x], &outputs, stream)?;
    eval(&results)?;
    Ok((values(&results[0])?, results[1].bytes()?.to_vec()))
}

#[test]
fn a_kernel_computes_and_fails_as_an_operation() {
    let stream = Stream::cpu().unwrap();
    let matrix = array(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let expect = (vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0], vec![2, 0, 0, 0]);
    assert_eq!(split(&matrix, &stream), Ok(expect));
    // An input that is not row-major is packed first.
    let transposed = ops::transpose(&matrix, &[1, 0], &stream).unwrap();
    let expect = (vec![2.0, 8.0, 4.0, 10.0, 6.0, 12.0], vec![3, 0, 0, 0]);
    assert_eq!(split(&transposed, &stream), Ok(expect));

    for (first, message) in [
        (-1.0, "negative"),
        (100.0, "a kernel panicked: too large: 100"),
    ] {
        let error = split(&array(&[first], &[1]), &stream).unwrap_err();
        assert!(error.0.contains(message), "{error}");
    }
    // The stream works on.
    let expect = (vec![2.0], vec![1, 0, 0, 0]);
    assert_eq!(split(&array(&[1.0], &[1]), &stream), Ok(expect));
}

#[test]
fn an_update_stays_in_place() {
    let stream = Stream::cpu().unwrap();
    let mut cache = array(&[0.0; 8], &[4, 2]);
    let mut moved = 0;
    for step in 0..4 {
        let row = array(&[step as f32, 1.0], &[1, 2]);
        let before = cache.bytes().unwrap().as_ptr().addr();
        cache = ops::slice_update(&cache, &row, &[step, 0], &[step + 1, 2], &stream).unwrap();
        cache.wait().unwrap();
        moved += usize::from(cache.bytes().unwrap().as_ptr().addr() != before);
    }
    assert_eq!(
        values(&cache),
        Ok(vec![0.0, 1.0, 1.0, 1.0, 2.0, 1.0, 3.0, 1.0])
    );
    // `cache` itself is held while the update is recorded, so MLX copies on the first use only.
    assert!(moved <= 4, "{moved}");
}
