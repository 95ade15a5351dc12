//! Headers of safetensors files.

use crate::change::{json, mutated};
use crate::fuzzing::{Bound, fuzz};
use mlxcel_frontend::read_tensors;
use mlxcel_test_support as support;
use proptest::prelude::*;

pub(crate) const BOUND: Bound = Bound {
    base: 64 << 10,
    each: 16,
};

/// A file with a header that describes tensors by values of any kind, and some bytes of data.
fn described() -> impl Strategy<Value = Vec<u8>> {
    let dtype = prop::sample::select(vec!["F32", "BF16", "U8", "F4", "I64", "F8_E4M3", "X"]);
    let shape = prop_oneof![
        json().prop_map(|value| serde_json::json!([value])),
        prop::collection::vec(0..6usize, 0..4).prop_map(|shape| serde_json::json!(shape)),
    ];
    let place = prop_oneof![json(), (0..32usize).prop_map(serde_json::Value::from)];
    let entry = (dtype, shape, place.clone(), place);
    (prop::collection::vec(entry, 0..4), 0usize..64).prop_map(|(entries, size)| {
        let tensors = entries.into_iter().enumerate();
        let tensors = tensors.map(|(index, (dtype, shape, from, to))| {
            let entry =
                serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [from, to]});
            (index.to_string(), entry)
        });
        let header = serde_json::Value::Object(tensors.collect()).to_string();
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), &vec![0; size]].concat()
    })
}

#[test]
fn safetensors_headers() {
    let file = support::golden("llama").join("expected.safetensors");
    let good = std::fs::read(file).expect("a file");
    let bytes = prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..300),
        3 => described(),
        3 => mutated(good, 2000),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.safetensors");
    fuzz("safetensors header", BOUND, bytes, |bytes, meter| {
        std::fs::write(&file, &bytes).expect("written");
        meter.hold(bytes.len(), || read_tensors(&file).is_ok())
    });
}
