//! Families held to what Hugging Face transformers computed for tiny models whose weights are made from
//! the tensors' names: a record is a configuration, shapes and a few numbers instead of a checkpoint.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::{NewTensor, repository, write_tensors};

/// Such a record.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedCase {
    /// The record's name: a family, and what is special about this model.
    #[serde(skip)]
    pub name: String,
    config: Value,
    /// The configuration in the spelling of transformers 4, if that differs.
    pub older: Option<Value>,
    /// Whether the prompt is longer than the texts of training and turns otherwise as a whole, so that
    /// its tokens one by one give other logits.
    #[serde(default)]
    pub whole: bool,
    tensors: serde_json::Map<String, Value>,
    /// Further files of the model's folder, by their paths in it.
    #[serde(default)]
    files: serde_json::Map<String, Value>,
    /// The prompt.
    pub ids: Vec<u32>,
    /// The logits after the prompt's ninth token, then those after its last one; of a model that gives
    /// vectors or scores, the prompt's.
    pub logits: Vec<f32>,
}

/// The records of language models, by name.
///
/// # Panics
/// If one is broken.
pub fn recorded_cases() -> Vec<RecordedCase> {
    records("families")
}

/// The records of decoders that give vectors or scores, by name.
///
/// # Panics
/// If one is broken.
pub fn recorded_vectors() -> Vec<RecordedCase> {
    records("vectors")
}

fn records(kind: &str) -> Vec<RecordedCase> {
    let folder = repository().join("frontend/tests/data").join(kind);
    let entries = fs::read_dir(folder).expect("the records can be listed");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the records can be listed").path())
        .collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> RecordedCase {
    let fail = |error: &dyn std::fmt::Display| -> ! { panic!("{}: {error}", file.display()) };
    let bytes = fs::read(file).unwrap_or_else(|error| fail(&error));
    let case = serde_json::from_slice(&bytes).unwrap_or_else(|error| fail(&error));
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    RecordedCase {
        name: name.into_owned(),
        ..case
    }
}

impl RecordedCase {
    /// The place of each recorded row of logits among the prompt's tokens.
    pub fn rows(&self) -> [usize; 2] {
        [8, self.ids.len() - 1]
    }

    /// Writes the model into `folder`, which is there, with config.v4.json beside config.json where the
    /// older spelling differs.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) {
        let tensor = |(name, shape): (&String, &Value)| {
            let sizes = shape.as_array().into_iter().flatten();
            let sizes: Vec<usize> = sizes
                .map(|size| size.as_u64().unwrap_or(0) as usize)
                .collect();
            NewTensor::f32(name, &sizes, &numbers(name, &sizes))
        };
        let tensors: Vec<NewTensor> = self.tensors.iter().map(tensor).collect();
        write_tensors(&folder.join("model.safetensors"), &tensors);
        for (path, value) in &self.files {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).expect("a folder can be made");
            fs::write(path, value.to_string()).expect("a file can be written");
        }
        let configs = [
            ("config.json", Some(&self.config)),
            ("config.v4.json", self.older.as_ref()),
        ];
        for (name, config) in configs {
            if let Some(config) = config {
                fs::write(folder.join(name), config.to_string())
                    .expect("a configuration can be written");
            }
        }
    }
}

/// The numbers of the tensor `name`: multiples of 1/512 within a quarter of zero, or of one for the
/// weight of a norm.
fn numbers(name: &str, shape: &[usize]) -> Vec<f32> {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    let one = match shape.len() == 1 && name.ends_with(".weight") {
        true => 1.0,
        false => 0.0,
    };
    let count: usize = shape.iter().product();
    let number = |index: usize| {
        let mut x = hash.wrapping_add((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        one + ((x >> 56) as f32 - 128.0) / 512.0
    };
    (0..count).map(number).collect()
}
