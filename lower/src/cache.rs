//! Compiled modules that are kept, by what they were made from.
//!
//! The key is a digest of the module of StableHLO, the flags, the compiler's library and, where code
//! is made for this machine, its processor. So a change of any of them, or of how graphs are
//! emitted, is another key. The least recently used entries go when there is no room.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where compiled modules are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The folder, which is made when needed.
    pub folder: PathBuf,
    /// The most bytes that all entries take.
    pub limit: u64,
}

/// Room for hundreds of modules.
const LIMIT: u64 = 1 << 30;

/// The environment variable with the folder of the cache.
const FOLDER_VARIABLE: &str = "MLXCEL_COMPILE_CACHE";

/// How names of entries end.
const SUFFIX: &str = "module";

/// Bytes before an entry's content: its digest, and the length of the statistics.
const HEAD: usize = 40;

/// What the compiler made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) statistics: Vec<u8>,
    pub(crate) module: Vec<u8>,
}

impl Cache {
    /// The cache of the user: the folder that `MLXCEL_COMPILE_CACHE` names, or one in the user's
    /// folder for caches. `None` if there is neither.
    pub fn of_user() -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = match set(FOLDER_VARIABLE) {
            Some(folder) => PathBuf::from(folder),
            None => {
                let caches = set("XDG_CACHE_HOME").map(PathBuf::from);
                let home = || Some(PathBuf::from(set("HOME")?).join(".cache"));
                caches.or_else(home)?.join("mlxcel").join("compiled")
            }
        };
        Some(Self {
            folder,
            limit: LIMIT,
        })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(SUFFIX)
    }

    /// The entry of a key, if it is there and whole.
    pub(crate) fn get(&self, key: &str) -> Option<Entry> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let (head, content) = bytes.split_at_checked(HEAD)?;
        let (digest, length) = head.split_at(HEAD - 8);
        let length = u64::from_le_bytes(length.try_into().ok()?);
        if digest_of(length, content) != *digest {
            // Damaged: the next compilation writes it again.
            let _ = fs::remove_file(&path);
            return None;
        }
        let (statistics, module) = content.split_at_checked(usize::try_from(length).ok()?)?;
        // Used now; a file system that keeps no times only loses the order.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(Entry {
            statistics: statistics.to_vec(),
            module: module.to_vec(),
        })
    }

    /// Keeps an entry, and makes room for it.
    pub(crate) fn put(&self, key: &str, entry: &Entry) -> io::Result<()> {
        let content = [&entry.statistics[..], &entry.module].concat();
        let size = (HEAD + content.len()) as u64;
        if size > self.limit {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        self.shrink(self.limit - size)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        let length = entry.statistics.len() as u64;
        file.write_all(&digest_of(length, &content))?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(&content)?;
        file.persist(self.path(key))?;
        Ok(())
    }

    /// Removes entries, the least recently used first, until they take at most `limit` bytes.
    fn shrink(&self, limit: u64) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let path = entry.path();
            if let Ok(data) = entry.metadata()
                && path.extension().is_some_and(|suffix| suffix == SUFFIX)
            {
                let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                entries.push((used, data.len(), path));
            }
        }
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in entries {
            if total <= limit {
                break;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(path);
            total -= size;
        }
        Ok(())
    }
}

fn digest_of(length: u64, content: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(length.to_le_bytes());
    digest.update(content);
    digest.finalize().into()
}

/// The key of what `library` makes of `module` with `flags`.
pub(crate) fn key(module: &[u8], flags: &[String], library: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(module);
    for flag in flags {
        add(flag.as_bytes());
    }
    if flags.iter().any(|flag| flag.ends_with("=host")) {
        add(crate::host::chip().as_bytes());
        add(crate::host::description().as_bytes());
    }
    let mut of_library = Sha256::new();
    let mut file = fs::File::open(library)?;
    let mut chunk = vec![0; 1 << 20];
    while let count @ 1.. = file.read(&mut chunk)? {
        of_library.update(&chunk[..count]);
    }
    add(&of_library.finalize());
    Ok(crate::weights_file::hex(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        Entry {
            statistics: b"{}".to_vec(),
            module: text.repeat(100).into_bytes(),
        }
    }

    #[test]
    fn keeps_what_was_used_last_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let size = (HEAD + 2 + 100) as u64;
        let cache = Cache {
            folder: folder.path().join("made"),
            limit: 2 * size,
        };
        assert_eq!(cache.get("a"), None);
        let past = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        for (key, second) in [("a", 1), ("b", 2)] {
            cache.put(key, &entry(key)).unwrap();
            let file = fs::File::open(cache.path(key)).unwrap();
            file.set_modified(past(second)).unwrap();
        }
        assert_eq!(cache.get("a"), Some(entry("a")));
        cache.put("c", &entry("c")).unwrap();
        let kept = ["a", "b", "c"].map(|key| cache.get(key).is_some());
        assert_eq!(kept, [true, false, true]);
    }

    #[test]
    fn damaged_entries_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            folder: folder.path().into(),
            limit: LIMIT,
        };
        cache.put("a", &entry("a")).unwrap();
        let whole = fs::read(cache.path("a")).unwrap();
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            fs::write(cache.path("a"), &bytes).unwrap();
            assert_eq!(cache.get("a"), None, "{place}");
        }
        fs::write(cache.path("a"), &whole[..20]).unwrap();
        assert_eq!(cache.get("a"), None);
    }

    #[test]
    fn keys_differ_by_each_part() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library");
        let check = |module: &str, flags: &[&str], compiler: &str| {
            fs::write(&library, compiler).unwrap();
            let flags: Vec<String> = flags.iter().map(|flag| flag.to_string()).collect();
            key(module.as_bytes(), &flags, &library).unwrap()
        };
        let keys = [
            check("m", &["f"], "c"),
            check("n", &["f"], "c"),
            check("m", &["g"], "c"),
            check("m", &["f"], "d"),
            check("mf", &[], "c"),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
