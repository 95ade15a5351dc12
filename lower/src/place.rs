//! The place of an artifact: written beside it, one writer at a time, and put there whole.

use crate::CompileError;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The sole right to write an artifact. While it is held, the unfinished artifact stands in
/// [`Place::part`]; what is not [`Place::publish`]ed goes away when it is dropped. After a process
/// that was killed, the next that writes the artifact removes what is left.
pub(crate) struct Place {
    output: PathBuf,
    part: PathBuf,
    old: PathBuf,
    lock: PathBuf,
    /// Locked.
    _held: File,
}

impl Place {
    /// Waits for whoever writes the artifact `output`, then takes the place. `waiting` is called
    /// now and then, and an error of it ends the waiting.
    pub(crate) fn take(
        output: &Path,
        mut waiting: impl FnMut() -> Result<(), CompileError>,
    ) -> Result<Self, CompileError> {
        let name = output.file_name().ok_or_else(|| CompileError::Option {
            option: "output",
            reason: format!("`{}` has no name", output.display()),
        })?;
        let parent = match output.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(file("create", parent))?;
        // Beside the artifact, so that the last step is a rename within one file system.
        let beside = |suffix: &str| {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(suffix);
            parent.join(hidden)
        };
        let lock = beside(".mlxcel-lock");
        let held = loop {
            let held = File::create(&lock).map_err(file("create", &lock))?;
            match held.try_lock() {
                // Whoever held it before removed the file, so that others may hold a newer one.
                Ok(()) if is_at(&held, &lock) => break held,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    waiting()?;
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                Err(TryLockError::Error(error)) => return Err(file("lock", &lock)(error)),
            }
        };
        let place = Self {
            output: output.to_path_buf(),
            part: beside(".mlxcel-part"),
            old: beside(".mlxcel-old"),
            lock,
            _held: held,
        };
        place.clean()?;
        fs::create_dir(&place.part).map_err(file("create", &place.part))?;
        Ok(place)
    }

    /// The folder to write the artifact in.
    pub(crate) fn part(&self) -> &Path {
        &self.part
    }

    /// Removes what a killed process left; an artifact that it was about to replace comes back.
    fn clean(&self) -> Result<(), CompileError> {
        if self.old.exists() && !self.output.exists() {
            fs::rename(&self.old, &self.output).map_err(file("restore", &self.output))?;
        }
        for left in [&self.part, &self.old] {
            remove(left).map_err(file("remove", left))?;
        }
        Ok(())
    }

    /// Puts the finished artifact, which is `whole`, the part or in it, in its place, in that of an older
    /// one too.
    pub(crate) fn publish(self, whole: &Path) -> Result<(), CompileError> {
        let replaces = self.output.exists();
        if replaces {
            fs::rename(&self.output, &self.old).map_err(file("replace", &self.output))?;
        }
        if let Err(error) = fs::rename(whole, &self.output) {
            if replaces {
                // What was there comes back; the first error is the one to report.
                let _ = fs::rename(&self.old, &self.output);
            }
            return Err(file("write", &self.output)(error));
        }
        if replaces {
            remove(&self.old).map_err(file("remove the old version of", &self.output))?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Gone already if the artifact was published; what cannot be removed the next writer removes.
        let _ = fs::remove_dir_all(&self.part);
        let _ = fs::remove_file(&self.lock);
    }
}

/// Removes a folder with all that is in it, or a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CompileError + use<> {
    let path = path.to_path_buf();
    move |source| CompileError::File {
        action,
        path,
        source,
    }
}

/// Whether `file` is what stands at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let key = |data: fs::Metadata| (data.dev(), data.ino());
    let (file, path) = (file.metadata().map(key), fs::metadata(path).map(key));
    matches!((file, path), (Ok(file), Ok(path)) if file == path)
}

/// An open file keeps its name here.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn write(output: &Path, text: &str) {
        let place = Place::take(output, || Ok(())).unwrap();
        fs::write(place.part().join("file"), text).unwrap();
        let part = place.part().to_path_buf();
        place.publish(&part).unwrap();
    }

    #[test]
    fn what_is_not_published_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("artifact");
        let place = Place::take(&output, || Ok(())).unwrap();
        fs::write(place.part().join("file"), "half").unwrap();
        drop(place);
        assert!(names(folder.path()).is_empty());
        for text in ["one", "two"] {
            write(&output, text);
            assert_eq!(fs::read_to_string(output.join("file")).unwrap(), text);
            assert_eq!(names(folder.path()), ["artifact"]);
        }
    }

    #[test]
    fn what_a_killed_writer_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("artifact");
        let make = |name: &str| {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("file"), name).unwrap();
        };
        make(".artifact.mlxcel-old");
        make(".artifact.mlxcel-part");
        fs::write(folder.path().join(".artifact.mlxcel-lock"), "").unwrap();
        drop(Place::take(&output, || Ok(())).unwrap());
        assert_eq!(names(folder.path()), ["artifact"]);
        let text = fs::read_to_string(output.join("file")).unwrap();
        assert_eq!(text, ".artifact.mlxcel-old");
    }

    #[test]
    fn writers_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("artifact");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let output = &output;
                scope.spawn(move || {
                    for turn in 0..20 {
                        write(output, &format!("{writer} {turn}"));
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["artifact"]);
        let held = Place::take(&output, || Ok(())).unwrap();
        let stopped = Place::take(&output, || Err(CompileError::Cancelled));
        assert!(matches!(stopped, Err(CompileError::Cancelled)));
        drop(held);
    }
}
