//! Inputs and weights for any graph, from a seed.

use crate::weight::{Code, PartType, Sides};
use crate::{
    Bindings, DType, Graph, HostTensor, Symbol, WeightData, WeightDecl, WeightFormat, WeightSource,
    step,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Weights in memory: for each name its values, scales and biases.
#[derive(Clone, Debug, Default)]
pub struct Weights(HashMap<String, [Vec<u8>; 3]>);

impl Weights {
    /// Stores the parts of a weight.
    pub fn insert(&mut self, name: impl Into<String>, parts: [Vec<u8>; 3]) {
        self.0.insert(name.into(), parts);
    }

    /// The parts of a weight, to change.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut [Vec<u8>; 3]> {
        self.0.get_mut(name)
    }
}

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        self.0.get(name).map(|[values, scales, biases]| WeightData {
            values,
            scales,
            biases,
        })
    }
}

/// What a graph is run on.
#[derive(Clone, Debug)]
pub struct Data {
    /// The inputs, by name.
    pub inputs: Vec<(String, HostTensor)>,
    /// The weights.
    pub weights: Arc<Weights>,
}

impl Data {
    /// Inputs and weights for `graph`. Half of the float inputs hold small multiples of 1/8, with
    /// which much arithmetic is exact, the other half arbitrary numbers; all are small. The inputs
    /// that executions know by name ([`step`]) are in range: tokens of a small vocabulary, lengths
    /// from 1 to T, starts that leave room in the cache. An input `far` has large positions.
    ///
    /// An input with an unbound symbol has no elements.
    pub fn new(graph: &Graph, bindings: &Bindings, seed: u64) -> Self {
        let inputs = graph.inputs.iter().map(|input| {
            let mut numbers = Numbers::new(seed, &input.name);
            let shape = input.ty.sizes(bindings).unwrap_or_else(|_| vec![0]);
            let count: usize = shape.iter().product();
            let size = |symbol| bindings.get(symbol).unwrap_or(1);
            let (tokens, capacity) = (size(Symbol::T), size(Symbol::S));
            let exact = numbers.below(2) == 0;
            let values: Vec<f64> = (0..count)
                .map(|_| match (input.name.as_str(), input.ty.dtype) {
                    (step::START, _) => numbers.below(capacity.saturating_sub(tokens) + 1) as f64,
                    (step::LENGTH, _) => 1.0 + numbers.below(tokens) as f64,
                    ("far", _) => numbers.below(5000) as f64,
                    (_, DType::Bool) => numbers.below(2) as f64,
                    (_, DType::I32 | DType::U32) => numbers.below(super::VOCABULARY) as f64,
                    _ if exact => numbers.below(33) as f64 / 8.0 - 2.0,
                    _ => 4.0 * numbers.unit() - 2.0,
                })
                .collect();
            let tensor = HostTensor::from_f64(input.ty.dtype, shape, &values);
            (input.name.clone(), tensor)
        });
        let inputs = inputs.collect();
        let mut weights = Weights::default();
        for declaration in &graph.weights {
            weights.insert(&declaration.name, stored(declaration, seed));
        }
        Self {
            inputs,
            weights: Arc::new(weights),
        }
    }

    /// The inputs with borrowed names.
    pub fn named(&self) -> Vec<(&str, HostTensor)> {
        let inputs = self.inputs.iter();
        inputs
            .map(|(name, tensor)| (name.as_str(), tensor.clone()))
            .collect()
    }
}

/// The parts of a random weight, whose numbers are small.
fn stored(declaration: &WeightDecl, seed: u64) -> [Vec<u8>; 3] {
    let mut numbers = Numbers::new(seed, &declaration.name);
    let [values, scales, biases] = declaration.parts();
    let count = |bytes: usize, part: PartType| bytes / part.size();
    let [value_bytes, scale_bytes, bias_bytes] = declaration.part_bytes();
    let mut random = |count: usize| {
        (0..count)
            .map(|_| numbers.next() as u8)
            .collect::<Vec<u8>>()
    };
    let Some(coded) = declaration.format.coded() else {
        let WeightFormat::Dense(dtype) = declaration.format else {
            return Default::default();
        };
        let width = declaration.shape.last().copied().unwrap_or(1).max(1);
        let scale = 1.0 / (width as f64).sqrt();
        let mut numbers = Numbers::new(seed, &declaration.name);
        let count = count(value_bytes, values.element);
        let numbers: Vec<f64> = (0..count)
            .map(|_| scale * (4.0 * numbers.unit() - 2.0))
            .collect();
        return [HostTensor::bytes_of(dtype, &numbers), vec![], vec![]];
    };
    let mut codes = random(value_bytes);
    if coded.code == Code::E4M3 {
        // All bits of exponent and mantissa set is no number.
        codes
            .iter_mut()
            .filter(|code| **code & 0x7f == 0x7f)
            .for_each(|code| *code ^= 1);
    }
    let small = |numbers: &mut Numbers, count: usize, scale: f64| -> Vec<f64> {
        (0..count).map(|_| scale * (0.5 + numbers.unit())).collect()
    };
    let mut sides = Numbers::new(seed ^ 1, &declaration.name);
    let scale = 0.5 / 2f64.powi(coded.code.bits().min(6) as i32);
    match coded.sides {
        Sides::Pairs(dtype) => {
            let groups = count(scale_bytes, scales.element);
            let scales = small(&mut sides, groups, scale);
            let half = 2f64.powi(coded.code.bits() as i32 - 1);
            let biases: Vec<f64> = scales.iter().map(|scale| -half * scale).collect();
            [
                codes,
                HostTensor::bytes_of(dtype, &scales),
                HostTensor::bytes_of(dtype, &biases),
            ]
        }
        Sides::E8M0 => {
            let scales = (0..scale_bytes).map(|_| 121 + sides.below(4) as u8);
            [codes, scales.collect(), vec![]]
        }
        Sides::E4M3 => {
            let scales = (0..scale_bytes).map(|_| 0x10 + sides.below(0x14) as u8);
            [codes, scales.collect(), vec![]]
        }
        Sides::ZeroPoint(dtype, _) => {
            let scales = small(&mut sides, count(scale_bytes, scales.element), scale);
            [codes, HostTensor::bytes_of(dtype, &scales), vec![]]
        }
        Sides::Scales(dtype) | Sides::Blocks(dtype) => {
            let scales = small(&mut sides, count(scale_bytes, scales.element), 1.0 / 512.0);
            [codes, HostTensor::bytes_of(dtype, &scales), vec![]]
        }
        Sides::Nested { zero } => {
            let outer = small(&mut sides, count(scale_bytes, scales.element), 1.0 / 2048.0);
            let groups = count(bias_bytes, biases.element);
            let inner = (0..groups).map(|_| match zero {
                // A signed byte, where there are no minima.
                Some(_) => (sides.below(64) as i8 - 32) as u8,
                None => sides.below(64) as u8,
            });
            [
                codes,
                HostTensor::bytes_of(DType::F16, &outer),
                inner.collect(),
            ]
        }
    }
}

/// SplitMix64, seeded by a number and a name.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64, name: &str) -> Self {
        // FNV-1a, so that inputs and weights differ from each other.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// A number from 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
