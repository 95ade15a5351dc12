//! Which safetensors files of a folder are the checkpoint.
//!
//! 1. With an index, the files that it names, and no other that stands beside them. If some of these
//!    are missing, the download is not complete. If all are, the index is stale (of another edition
//!    of the checkpoint) and counts as none. In which of its files a tensor is, the files say.
//! 2. Else `model.safetensors`.
//! 3. Else the shards `NAME-00001-of-0000N.safetensors`, if there is one complete set of them.
//! 4. Else the only safetensors file.

use crate::config::fields::Fields;
use crate::{LoadError, map};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Name of the file of a checkpoint in one piece.
const SINGLE: &str = "model.safetensors";
/// Name of the index of a checkpoint in several files.
const INDEX: &str = "model.safetensors.index.json";
/// What the names of all files end with.
const ENDING: &str = ".safetensors";

/// Names of the files, in order.
///
/// # Errors
/// An index that is broken, files that are missing, or none, or several that could be meant.
pub(super) fn of(folder: &Path) -> Result<Vec<String>, LoadError> {
    let index = folder.join(INDEX);
    let mut stale = None;
    if index.is_file() {
        let named = read_index(&index)?;
        let (found, missing): (Vec<String>, Vec<String>) = named
            .into_iter()
            .partition(|name| folder.join(name).is_file());
        match (found.is_empty(), missing.into_iter().next()) {
            (_, None) => return Ok(found),
            (false, Some(shard)) => return Err(LoadError::MissingShard { index, shard }),
            (true, missing) => stale = missing,
        }
    }
    if folder.join(SINGLE).is_file() {
        return Ok(vec![SINGLE.into()]);
    }
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .map_err(LoadError::read(folder))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(ENDING))
        .collect();
    files.sort();
    let mut sets = sets(&files);
    match (sets.len(), files.len(), stale) {
        (1, ..) => Ok(sets.remove(0)),
        (0, _, Some(shard)) => Err(LoadError::MissingShard { index, shard }),
        (_, 0, _) => Err(refused(folder, "it has no .safetensors file".into())),
        (0, 1, _) if shard(&files[0]).is_none() => Ok(files),
        (0, _, _) if files.iter().any(|name| shard(name).is_some()) => {
            let reason = format!(
                "some of the files that `{}` belongs to are missing; download them again",
                files
                    .iter()
                    .find(|name| shard(name).is_some())
                    .map_or("", String::as_str)
            );
            Err(refused(folder, reason))
        }
        _ => {
            let reason = format!(
                "it has several .safetensors files ({}) but no {INDEX} that says which are meant",
                files.join(", ")
            );
            Err(refused(folder, reason))
        }
    }
}

fn refused(folder: &Path, reason: String) -> LoadError {
    LoadError::NotAModel {
        path: folder.to_path_buf(),
        reason,
    }
}

/// The set that the shard `name` belongs to, its number in it and how many there are.
fn shard(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, total) = name.strip_suffix(ENDING)?.rsplit_once("-of-")?;
    let (set, number) = rest.rsplit_once('-')?;
    let number: usize = number.parse().ok()?;
    let total: usize = total.parse().ok()?;
    (1..=total)
        .contains(&number)
        .then_some((set, number, total))
}

/// The complete sets of shards among `files`.
fn sets(files: &[String]) -> Vec<Vec<String>> {
    let mut sets: BTreeMap<(&str, usize), BTreeMap<usize, &String>> = BTreeMap::new();
    for name in files {
        if let Some((set, number, total)) = shard(name) {
            sets.entry((set, total)).or_default().insert(number, name);
        }
    }
    sets.into_iter()
        .filter(|((_, total), shards)| shards.len() == *total)
        .map(|(_, shards)| shards.into_values().cloned().collect())
        .collect()
}

/// Names of the files that the index `index` names.
fn read_index(index: &Path) -> Result<BTreeSet<String>, LoadError> {
    let value = map::read_json(index, map::SMALL)?;
    let fields = Fields::root(index, &value)?;
    let placed = fields
        .object("weight_map")?
        .ok_or_else(|| fields.missing("weight_map"))?;
    let mut shards = BTreeSet::new();
    for (tensor, shard) in placed.entries() {
        let name = shard
            .as_str()
            // A shard stands beside its index: a name with a path could leave the folder.
            .filter(|name| Path::new(name).file_name() == Some(name.as_ref()))
            .ok_or_else(|| placed.expected(tensor, "the name of a file in this folder", shard))?;
        shards.insert(name.to_string());
    }
    match shards.is_empty() {
        true => Err(fields.error("weight_map", "names no tensors")),
        false => Ok(shards),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ONE: &str = "model-00001-of-00002.safetensors";
    const TWO: &str = "model-00002-of-00002.safetensors";

    #[test]
    fn the_files_that_are_meant_are_found() {
        let check = |index: &[&str], files: &[&str], expect: Result<&[&str], &str>| {
            let folder = tempfile::tempdir().expect("a folder");
            for file in files {
                std::fs::write(folder.path().join(file), "").expect("written");
            }
            if !index.is_empty() {
                let placed: BTreeMap<&str, &str> =
                    index.iter().map(|file| (*file, *file)).collect();
                let text = json!({ "weight_map": placed }).to_string();
                std::fs::write(folder.path().join(INDEX), text).expect("written");
            }
            match (of(folder.path()), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{index:?} {files:?}"),
                (Err(error), Err(expect)) => {
                    assert!(
                        error.to_string().contains(expect),
                        "{index:?} {files:?}: {error}"
                    );
                }
                (found, _) => panic!("{index:?} {files:?}: {found:?}"),
            }
        };
        let stray = "consolidated.safetensors";
        check(&[ONE, TWO], &[ONE, TWO], Ok(&[ONE, TWO]));
        check(&[ONE, TWO], &[ONE, TWO, SINGLE, stray], Ok(&[ONE, TWO]));
        check(&[ONE, TWO], &[ONE, stray], Err(TWO));
        check(&["old.safetensors"], &[SINGLE, stray], Ok(&[SINGLE]));
        check(&["old.safetensors"], &[ONE, TWO], Ok(&[ONE, TWO]));
        check(&["old.safetensors"], &[], Err("old.safetensors"));
        check(&[], &[SINGLE, ONE], Ok(&[SINGLE]));
        check(&[], &[ONE, TWO, stray], Ok(&[ONE, TWO]));
        check(&[], &[ONE], Err(ONE));
        check(&[], &[ONE, stray], Err(ONE));
        check(&[], &[stray], Ok(&[stray]));
        check(
            &[],
            &["a.safetensors", "b.safetensors"],
            Err("a.safetensors, b.safetensors"),
        );
        check(
            &[],
            &[
                "model-1-of-99999999999999999999.safetensors",
                "b.safetensors",
            ],
            Err("several"),
        );
        check(&[], &[], Err("no .safetensors"));
    }
}
