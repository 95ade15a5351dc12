//! Hundreds of ways to damage an artifact, each of which is refused by a message that names the part.

use crate::artifact::load;
use crate::toy;
use mlxcel_frontend::artifact::archive::{self, BLOCK};
use mlxcel_frontend::artifact::{CONTRACT, MANIFEST, MODULE, WEIGHTS};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const PARTS: [&str; 4] = [MANIFEST, MODULE, WEIGHTS, CONTRACT];

/// The bytes of a part after some damage, or none if the file is gone.
type Damaged = Option<Vec<u8>>;

/// Damage that changes a file without regard to what is in it.
fn blind(bytes: &[u8]) -> Vec<(String, Damaged)> {
    let spread = |count: usize| (0..count).map(move |index| index * bytes.len() / count);
    let flips = spread(60).map(|place| {
        let mut bytes = bytes.to_vec();
        bytes[place] ^= 1 << (place % 8);
        (format!("a bit flipped at {place}"), Some(bytes))
    });
    let cuts = spread(20).map(|length| {
        let bytes = bytes[..length].to_vec();
        (format!("cut to {length} bytes"), Some(bytes))
    });
    let longer = [bytes, b"x"].concat();
    let others = [
        ("a byte longer".to_string(), Some(longer)),
        ("gone".to_string(), None),
    ];
    flips.chain(cuts).chain(others).collect()
}

/// Pointers to everything in `value` that holds no other value.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                leaves(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (index, value) in list.iter().enumerate() {
                leaves(value, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_string()),
    }
}

/// Every leaf of the manifest replaced by plausible and implausible values.
fn edits(manifest: &[u8]) -> Vec<(String, Damaged)> {
    let manifest: Value = serde_json::from_slice(manifest).unwrap();
    let mut pointers = Vec::new();
    leaves(&manifest, "", &mut pointers);
    let mut edited = Vec::new();
    for pointer in pointers {
        let old = manifest.pointer(&pointer).unwrap();
        let next = old.as_u64().map_or(json!("x"), |number| json!(number + 1));
        for value in [next, json!(null), json!([]), json!(3)] {
            // Nothing said is the same as null.
            if value == *old || (value.is_null() && pointer.ends_with("tokens_dim")) {
                continue;
            }
            let mut manifest = manifest.clone();
            let name = format!("{pointer} is {value}");
            *manifest.pointer_mut(&pointer).unwrap() = value;
            edited.push((name, Some(manifest.to_string().into_bytes())));
        }
    }
    edited
}

fn put(folder: &Path, part: &str, bytes: &Damaged) {
    let path = folder.join(part);
    match bytes {
        Some(bytes) => fs::write(path, bytes).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
}

#[test]
fn every_damaged_part_is_named() {
    let Some(folder) = toy::artifact() else {
        return;
    };
    let folder = folder.path();
    let whole = PARTS.map(|part| fs::read(folder.join(part)).unwrap());
    let mut count = 0;
    let mut check = |name: &str, parts: &[&str]| {
        let error = load(folder).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{parts:?}, {name}: loaded"));
        let named = parts.iter().any(|part| error.contains(part));
        assert!(named, "{parts:?}, {name}: {error}");
        count += 1;
    };
    for (part, bytes) in PARTS.iter().zip(&whole) {
        let mut damages = blind(bytes);
        if *part == MANIFEST {
            damages.extend(edits(bytes));
        }
        for (name, damaged) in damages {
            put(folder, part, &damaged);
            check(&name, &[part]);
        }
        put(folder, part, &Some(bytes.clone()));
    }
    for (first, second) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
        put(folder, PARTS[first], &Some(whole[second].clone()));
        put(folder, PARTS[second], &Some(whole[first].clone()));
        check("swapped", &[PARTS[first], PARTS[second]]);
        put(folder, PARTS[first], &Some(whole[first].clone()));
        put(folder, PARTS[second], &Some(whole[second].clone()));
    }
    assert!(count >= 300, "{count} cases");
    load(folder).unwrap();
}

/// The parts as one file.
fn packed(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    for (name, bytes) in parts {
        file.extend(archive::header(name, bytes.len() as u64).unwrap());
        file.extend_from_slice(bytes);
        file.resize(file.len() + archive::fill(bytes.len() as u64), 0);
    }
    file.resize(file.len() + 2 * BLOCK, 0);
    file
}

#[test]
fn every_damage_to_one_file_is_refused() {
    let Some(folder) = toy::artifact() else {
        return;
    };
    // The manifest comes last.
    let names = [MODULE, WEIGHTS, CONTRACT, MANIFEST];
    let whole = names.map(|name| fs::read(folder.path().join(name)).unwrap());
    let parts = |changed: &[(usize, &[u8])]| -> Vec<(&'static str, Vec<u8>)> {
        let part = |index: usize| {
            let change = changed.iter().find(|(at, _)| *at == index);
            change.map_or(whole[index].clone(), |(_, bytes)| bytes.to_vec())
        };
        (0..names.len())
            .map(|index| (names[index], part(index)))
            .collect()
    };
    let pack = |parts: &[(&str, Vec<u8>)]| {
        let parts: Vec<(&str, &[u8])> = parts
            .iter()
            .map(|(name, bytes)| (*name, &bytes[..]))
            .collect();
        packed(&parts)
    };
    let path = folder.path().join("one");
    let good = pack(&parts(&[]));
    fs::write(&path, &good).unwrap();
    let runtime = load(&path).unwrap();
    assert_eq!(runtime.vocabulary(), toy::VOCABULARY);
    drop(runtime);
    let mut count = 0;
    let mut check = |name: &str, bytes: &[u8], expect: &str| {
        fs::write(&path, bytes).unwrap();
        let error = load(&path).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{name}: loaded"));
        assert!(
            error.contains(expect),
            "{name}: {expect} is not in: {error}"
        );
        assert!(
            error.contains(&path.display().to_string()),
            "{name}: {error}"
        );
        count += 1;
    };
    for (index, name) in names.into_iter().enumerate() {
        let mut damages = blind(&whole[index]);
        if name == MANIFEST {
            damages.extend(edits(&whole[index]));
        }
        for (damage, bytes) in damages {
            let file = match &bytes {
                Some(bytes) => pack(&parts(&[(index, bytes)])),
                None => {
                    let mut parts = parts(&[]);
                    parts.remove(index);
                    pack(&parts)
                }
            };
            // Without a manifest what is missing is the end.
            let expect = match (name, &bytes) {
                (MANIFEST, None) => CONTRACT,
                _ => name,
            };
            check(&damage, &file, expect);
        }
    }
    for (first, second) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
        let swapped = [(first, &whole[second][..]), (second, &whole[first][..])];
        check("swapped", &pack(&parts(&swapped)), "");
    }
    // Anything in the file itself: headers, what fills blocks, the end.
    for place in (0..good.len()).step_by(good.len() / 200 + 1) {
        let mut bytes = good.clone();
        bytes[place] ^= 1 << (place % 8);
        check(&format!("a bit flipped at {place}"), &bytes, "");
    }
    for length in (0..good.len()).step_by(good.len() / 50 + 1) {
        check(&format!("cut to {length} bytes"), &good[..length], "");
    }
    check("longer", &[&good[..], b"x"].concat(), MANIFEST);
    assert!(count >= 500, "{count} cases");
    fs::write(&path, &good).unwrap();
    load(&path).unwrap();
}
