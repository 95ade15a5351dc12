//! Unpacks the archives of `tests/` into the build folder.
//!
//! Doing it here, not in the tests, leaves the locking to cargo: however many test processes run at once,
//! each finds the folders complete.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

fn main() -> Result<(), Box<dyn Error>> {
    let archives = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("..");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TARGET={}", std::env::var("TARGET")?);
    for name in ["goldens", "families", "gguf", "demo-4bit"] {
        unpack(&archives.join(format!("{name}.tar.gz")), &out.join(name))?;
    }
    Ok(())
}

/// Replaces `folder` by the archive's top folder of the same name.
fn unpack(archive: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", archive.display());
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let file = File::open(archive).map_err(|error| format!("{}: {error}", archive.display()))?;
    let parent = folder.parent().ok_or("the build folder has no parent")?;
    tar::Archive::new(GzDecoder::new(file))
        .unpack(parent)
        .map_err(|error| format!("{}: {error}", archive.display()).into())
}
