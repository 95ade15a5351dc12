//! Models in several files, `NAME-00001-of-00003.gguf`: the first has the metadata of all, each says in
//! `split.no` and `split.count` which of how many it is.

use super::read::{self, Head};
use crate::LoadError;
use crate::map::MappedFile;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the names of GGUF files end with.
const ENDING: &str = ".gguf";
/// What the names of the files begin with that hold what turns images into tokens, beside a model.
const PROJECTOR: &str = "mmproj";

/// The name of a part.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    /// What all parts' names begin with.
    set: &'a str,
    /// How many digits the numbers have.
    digits: usize,
    total: usize,
}

impl<'a> Part<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let (rest, total) = name.strip_suffix(ENDING)?.rsplit_once("-of-")?;
        let (set, number) = rest.rsplit_once('-')?;
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if number.len() != total.len() || !all_digits(number) || !all_digits(total) {
            return None;
        }
        let digits = number.len();
        let (number, total): (usize, usize) = (number.parse().ok()?, total.parse().ok()?);
        let part = Self { set, digits, total };
        (1..=total).contains(&number).then_some(part)
    }

    fn name(self, number: usize) -> String {
        let Self { set, digits, total } = self;
        format!("{set}-{number:0digits$}-of-{total:0digits$}{ENDING}")
    }
}

fn name(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default()
}

/// `name`, which has no ending, without the number of a part.
pub(crate) fn without_number(name: &str) -> String {
    let whole = format!("{name}{ENDING}");
    Part::of(&whole).map_or(name, |part| part.set).to_string()
}

/// The first file of the model that the file at `path` is, or a part of.
pub(crate) fn first(path: &Path) -> PathBuf {
    match Part::of(name(path)) {
        Some(part) => path.with_file_name(part.name(1)),
        None => path.to_path_buf(),
    }
}

/// The first file of the only model in `folder`, if there is any.
///
/// # Errors
/// There are several; they are named.
pub(crate) fn of_folder(folder: &Path) -> Result<Option<PathBuf>, LoadError> {
    let entries = std::fs::read_dir(folder).map_err(LoadError::read(folder))?;
    let models: BTreeSet<PathBuf> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(ENDING) && !name.starts_with(PROJECTOR))
        .map(|name| first(&folder.join(name)))
        .collect();
    match models.len() {
        0 | 1 => Ok(models.into_iter().next()),
        _ => {
            let names: Vec<&str> = models.iter().map(|path| name(path)).collect();
            Err(LoadError::NotAModel {
                path: folder.to_path_buf(),
                reason: format!(
                    "it has several .gguf files; name one of {}",
                    names.join(", ")
                ),
            })
        }
    }
}

/// Maps the files of the model whose first one is at `path`.
///
/// # Errors
/// The first of them that is missing.
pub(super) fn open(path: &Path) -> Result<Vec<MappedFile>, LoadError> {
    let Some(part) = Part::of(name(path)) else {
        return Ok(vec![MappedFile::open(path)?]);
    };
    let mut files = Vec::new();
    for number in 1..=part.total {
        let shard = part.name(number);
        let file = path.with_file_name(&shard);
        if !file.is_file() {
            return Err(LoadError::MissingPart {
                folder: path.parent().unwrap_or(path).to_path_buf(),
                total: part.total,
                part: shard,
            });
        }
        files.push(MappedFile::open(&file)?);
    }
    Ok(files)
}

/// Reads what precedes the data of each of `files`, and checks that they belong together.
pub(super) fn heads(files: &[MappedFile]) -> Result<Vec<Head<'_>>, LoadError> {
    let heads = files
        .iter()
        .map(|file| read::head(file.path(), file.bytes()));
    let heads: Vec<Head<'_>> = heads.collect::<Result<_, _>>()?;
    let all: usize = heads.iter().map(|head| head.tensors.len()).sum();
    for (index, head) in heads.iter().enumerate() {
        let fail = |field: &str, reason: String| LoadError::Field {
            file: head.file.to_path_buf(),
            field: field.into(),
            reason,
        };
        let number = |field: &str| head.metadata.get(field).and_then(|value| value.integer());
        let count = number("split.count");
        if files.len() == 1 {
            if let Some(count) = count.filter(|&count| count > 1) {
                let reason = format!(
                    "is {count}, but the file's name does not say which of them it is; they must be \
                     called NAME-00001-of-{count:05}{ENDING} and so on"
                );
                return Err(fail("split.count", reason));
            }
            continue;
        }
        let expected = [("split.count", files.len()), ("split.no", index)];
        for (field, expected) in expected {
            let found = number(field);
            if found != i64::try_from(expected).ok() {
                let found = found.map_or("not there".into(), |found| found.to_string());
                let reason = format!("is {found}, and by the file's name must be {expected}");
                return Err(fail(field, reason));
            }
        }
    }
    let field = "split.tensors.count";
    for head in heads.iter().filter(|_| files.len() > 1) {
        let count = head.metadata.get(field).and_then(|value| value.integer());
        if let Some(count) = count.filter(|&count| i64::try_from(all).ok() != Some(count)) {
            return Err(LoadError::Field {
                file: head.file.to_path_buf(),
                field: field.into(),
                reason: format!("is {count}, but all files together have {all} tensors"),
            });
        }
    }
    Ok(heads)
}
