//! Configurations of every family, each beside the weights of a model that has it.

use crate::change::{json, replace};
use crate::fuzzing::{Bound, fuzz};
use mlxcel_frontend::Model;
use mlxcel_test_support::{recorded_cases, recorded_vectors};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) const BOUND: Bound = Bound {
    base: 64 << 20,
    each: 160,
};

/// A change of a configuration.
#[derive(Clone, Debug)]
enum Edit {
    /// A field of any family.
    Set(String, Value),
    /// Whatever stands at a place.
    Replace(Vec<Index>, Value),
    Remove(Index),
}

fn edit(names: Vec<String>) -> impl Strategy<Value = Edit> {
    prop_oneof![
        (select(names), json()).prop_map(|(name, value)| Edit::Set(name, value)),
        (prop::collection::vec(any::<Index>(), 1..4), json())
            .prop_map(|(path, value)| Edit::Replace(path, value)),
        any::<Index>().prop_map(Edit::Remove),
    ]
}

fn apply(edit: Edit, config: &mut Value) {
    match edit {
        Edit::Replace(path, value) => replace(config, &path, value),
        Edit::Set(name, value) => {
            if let Some(fields) = config.as_object_mut() {
                fields.insert(name, value);
            }
        }
        Edit::Remove(at) => {
            if let Some(fields) = config.as_object_mut().filter(|fields| !fields.is_empty()) {
                let name = fields.keys().nth(at.index(fields.len())).cloned();
                fields.remove(&name.unwrap_or_default());
            }
        }
    }
}

#[test]
fn configurations() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut models = Vec::new();
    let mut names: BTreeSet<String> = ["quantization", "quantization_config", "rope_scaling"]
        .map(String::from)
        .into();
    for case in recorded_cases().iter().chain(&recorded_vectors()) {
        let place = folder.path().join(&case.name);
        std::fs::create_dir_all(&place).expect("a folder");
        case.write(&place);
        let file = place.join("config.json");
        let config = std::fs::read(&file).expect("a configuration");
        let config: Value = serde_json::from_slice(&config).expect("JSON");
        names.extend(
            config
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone()),
        );
        models.push((place, file, config));
    }
    let edits = prop::collection::vec(edit(names.into_iter().collect()), 1..4);
    let inputs = (0..models.len(), edits);
    fuzz("config.json", BOUND, inputs, |(at, edits), meter| {
        let (place, file, config) = &models[at];
        let mut config = config.clone();
        for edit in edits {
            apply(edit, &mut config);
        }
        let text = config.to_string();
        std::fs::write(file, &text).expect("written");
        meter.hold(text.len(), || Model::load(place).is_ok())
    });
}
