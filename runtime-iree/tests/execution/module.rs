//! Functions of a module called on tensors in host memory.

use crate::toy::{self, CONTEXT, VOCABULARY, WIDTH};
use mlxcel_ir::{DType, HostTensor, WeightData, WeightDecl, WeightFormat, WeightSource};
use mlxcel_runtime_iree::{Device, DeviceSpec, Error, Module, Parameters};
use std::sync::Arc;

/// The embedding as a source of weights.
struct Weights {
    name: &'static str,
    bytes: Vec<u8>,
}

impl Weights {
    fn new(name: &'static str, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        Self {
            name,
            bytes: bytes.collect(),
        }
    }
}

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        (name == self.name).then_some(WeightData {
            values: &self.bytes,
            scales: &[],
            biases: &[],
        })
    }
}

fn declared() -> WeightDecl {
    WeightDecl {
        name: "embed".into(),
        shape: vec![VOCABULARY, WIDTH],
        format: WeightFormat::Dense(DType::F32),
    }
}

fn load(device: &str, vmfb: &[u8], weights: Weights) -> Result<Module, Error> {
    let device = Device::open(device.parse()?)?;
    let source: Arc<dyn WeightSource> = Arc::new(weights);
    Module::from_bytes(&device, vmfb, &source, &[declared()])
}

fn toy_on(device: &str) -> Option<Module> {
    let weights = Weights::new("embed", &toy::embedding());
    Some(load(device, toy::module()?, weights).unwrap())
}

fn scalar(value: i32) -> HostTensor {
    HostTensor::i32([], &[value])
}

#[test]
fn computes_with_parameters() {
    for device in ["local-sync", "local-task"] {
        let Some(module) = toy_on(device) else { return };
        let x = HostTensor::f32([2, 4], &[1.0; 8]);
        let expect: Vec<f32> = toy::embedding()[..8].iter().map(|w| w * 3.0).collect();
        let results = module.call("scaled", &[x, scalar(3)]).unwrap();
        assert_eq!(results, [HostTensor::f32([2, 4], &expect)], "{device}");
        assert_eq!(module.weight_bytes(), VOCABULARY * WIDTH * 4);
    }
}

#[test]
fn takes_and_returns_unsigned_integers_and_truth_values() {
    let Some(module) = toy_on("local-sync") else {
        return;
    };
    let numbers = |values: [u32; 3]| HostTensor {
        dtype: DType::U32,
        shape: vec![3],
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    };
    let truths = |values: [u8; 3]| HostTensor {
        dtype: DType::Bool,
        shape: vec![3],
        bytes: values.to_vec(),
    };
    let results = module
        .call("unsigned", &[numbers([1, 2, 1 << 30]), truths([0, 1, 0])])
        .unwrap();
    assert_eq!(results[0].bytes, numbers([2, 4, 1 << 31]).bytes);
    assert_eq!(results[1], truths([1, 0, 1]));
}

#[test]
fn returns_the_updated_cache() {
    let Some(module) = toy_on("local-task") else {
        return;
    };
    let one = |value| HostTensor::i32([1], &[value]);
    let cache = HostTensor::f32([1, CONTEXT, 1, WIDTH], &[0.0; CONTEXT * WIDTH]);
    let tokens = HostTensor::i32([1, 4], &[3, 5, 0, 0]);
    let results = module
        .call("prefill", &[tokens, one(0), one(2), cache])
        .unwrap();
    let logits = toy::logits(&[3, 5]);
    assert_eq!(
        results[0],
        HostTensor::f32([1, VOCABULARY], &logits[VOCABULARY..])
    );
    assert_eq!(results[1].to_f64(), [f64::from(toy::choice(&[3, 5]))]);
    let expect = [3, 5].map(|token| toy::embedding()[token * WIDTH..][..WIDTH].to_vec());
    let updated: Vec<f64> = results[2].to_f64();
    let expect: Vec<f64> = expect.concat().into_iter().map(f64::from).collect();
    assert_eq!(updated[..2 * WIDTH], expect);
}

#[test]
fn names_what_is_wrong_with_a_call() {
    let Some(module) = toy_on("local-sync") else {
        return;
    };
    let check = |function: &str, inputs: &[HostTensor], expect: &str| {
        assert_eq!(
            module.call(function, inputs).unwrap_err().to_string(),
            expect
        );
    };
    let x = || HostTensor::f32([2, 4], &[0.0; 8]);
    let known: Vec<&str> = module.functions().map(|known| &*known.name).collect();
    let known = known.join(", ");
    assert!(
        known.starts_with("decode, ") && known.ends_with(", scaled, unsigned"),
        "{known}"
    );
    let absent = format!("the compiled module has no function `absent`; it has {known}");
    check("absent", &[], &absent);
    check(
        "scaled",
        &[x()],
        "function `scaled` takes 2 arguments and was given 1",
    );
    check(
        "scaled",
        &[HostTensor::f32([4, 2], &[0.0; 8]), scalar(1)],
        "function `scaled`, argument 0: expected tensor<2x4xf32>, given tensor<4x2xf32>",
    );
    check(
        "scaled",
        &[x(), HostTensor::f32([], &[1.0])],
        "function `scaled`, argument 1: expected tensor<i32>, given tensor<f32>",
    );
    let short = HostTensor {
        bytes: vec![0; 8],
        ..x()
    };
    let error = module.call("scaled", &[short, scalar(1)]).unwrap_err();
    assert!(error.to_string().contains("8 bytes do not fill"), "{error}");
    // After all of that it still works.
    assert!(module.call("scaled", &[x(), scalar(1)]).is_ok());
}

#[test]
fn names_the_weight_that_does_not_fit() {
    let Some(vmfb) = toy::module() else { return };
    let check = |result: Result<Module, Error>, expect: &str| {
        let error = result.err().unwrap();
        assert!(matches!(error, Error::Weights { .. }), "{error}");
        assert!(error.to_string().contains(expect), "{error}");
    };
    let other = Weights::new("other", &toy::embedding());
    check(load("local-sync", vmfb, other), "nothing provides `embed`");
    let short = Weights::new("embed", &[1.0; 4]);
    check(load("local-sync", vmfb, short), "embed");
    let device = Device::open(DeviceSpec::LocalSync).unwrap();
    check(Module::load(&device, vmfb, &Parameters::none()), "embed");
}

#[test]
fn refuses_bytes_that_are_no_module() {
    let device = Device::open(DeviceSpec::LocalSync).unwrap();
    let check = |bytes: &[u8]| {
        let error = Module::load(&device, bytes, &Parameters::none()).err();
        assert!(matches!(error, Some(Error::Module { .. })), "{error:?}");
    };
    check(&[]);
    check(b"not a module");
    check(&[0xA5; 5000]);
    if let Some(vmfb) = toy::module() {
        check(&vmfb[..vmfb.len() / 2]);
    }
}

#[test]
fn names_the_device_that_cannot_be_had() {
    let check = |name: &str, expect: &str| {
        let error = name.parse().and_then(Device::open).unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
    };
    check("tpu", "unknown device `tpu`: use local-task");
    check("cuda:x", "unknown device `cuda:x`");
    if !cfg!(feature = "cuda") {
        check("cuda", "device `cuda:0`: this build has no driver for it");
    }
}

#[test]
fn a_module_can_move_to_another_thread() {
    let Some(module) = toy_on("local-task") else {
        return;
    };
    let worker = std::thread::spawn(move || {
        let x = HostTensor::f32([2, 4], &[1.0; 8]);
        module
            .call("scaled", &[x, scalar(1)])
            .map(|results| results.len())
    });
    assert_eq!(worker.join().unwrap(), Ok(1));
}
