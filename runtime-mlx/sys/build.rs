//! Compiles the C++ shim against the headers of an installed MLX and links that MLX.
//!
//! MLX comes from `MLXCEL_MLX_DIR` (a folder with `include/mlx/mlx.h` and `lib/`) or from what
//! `cargo xtask setup` put into `.deps`. Headers and library must be of exactly the version that
//! the shim is written for, since MLX promises no binary compatibility between patch versions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The MLX that the shim is written for: `100000 * major + 1000 * minor + patch`.
const VERSION: (u32, u32, u32) = (0, 32, 4);

fn main() {
    for path in ["build.rs", "cpp", "src/bridge.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=MLXCEL_MLX_DIR");
    if let Err(message) = build() {
        println!("cargo::error={message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let prefix = find()?;
    check_version(&prefix)?;
    cxx_build::bridge("src/bridge.rs")
        .file("cpp/array.cpp")
        .file("cpp/custom.cpp")
        .file("cpp/ops.cpp")
        .include("cpp")
        // MLX's headers are not ours to keep free of warnings.
        .flag("-isystem")
        .flag(prefix.join("include"))
        .std("c++20")
        .flag_if_supported("-Wno-unused-parameter")
        .compile("mlxcel_mlx_shim");

    // Cargo adds a search path to the loader's path of `cargo run` and `cargo test` only if it lies
    // in the target folder, hence the links. MLX finds its BLAS beside itself, at
    // `../../mlx_cpu.libs`, so the layout around `mlx/lib` is kept.
    let library = mirror(&prefix)?;
    println!("cargo::rustc-link-search=native={}", library.display());
    println!("cargo::rustc-link-lib=dylib=mlx");
    let real = prefix.join("lib");
    println!("cargo::metadata=rpath={}", real.display());
    link_arguments(&real);
    Ok(())
}

/// What this crate's own tests need to start outside of cargo.
fn link_arguments(library: &Path) {
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", library.display());
}

fn find() -> Result<PathBuf, String> {
    let holds_mlx = |prefix: &Path| prefix.join("include/mlx/mlx.h").is_file();
    if let Some(given) = env::var_os("MLXCEL_MLX_DIR") {
        let prefix = PathBuf::from(given);
        return if holds_mlx(&prefix) {
            Ok(prefix)
        } else {
            Err(format!(
                "MLXCEL_MLX_DIR is {}, where there is no include/mlx/mlx.h",
                prefix.display()
            ))
        };
    }
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let workspace = manifest.ancestors().nth(2).unwrap_or(&manifest);
    let python = workspace.join(".deps/python");
    println!("cargo::rerun-if-changed={}", python.join("stamp").display());
    let versions = fs::read_dir(python.join("lib")).into_iter().flatten();
    versions
        .flatten()
        .map(|version| version.path().join("site-packages/mlx"))
        .find(|prefix| holds_mlx(prefix))
        .ok_or_else(|| {
            format!(
                "MLX was not found in {}: run `cargo xtask setup`, or set MLXCEL_MLX_DIR to a folder \
                 with MLX's include and lib",
                python.display()
            )
        })
}

fn check_version(prefix: &Path) -> Result<(), String> {
    let header = prefix.join("include/mlx/version.h");
    let text = fs::read_to_string(&header)
        .map_err(|error| format!("cannot read {}: {error}", header.display()))?;
    let number = |name: &str| {
        text.lines()
            .filter_map(|line| line.strip_prefix("#define "))
            .filter_map(|line| line.split_once(' '))
            .find(|(known, _)| *known == name)
            .and_then(|(_, value)| value.trim().parse::<u32>().ok())
    };
    let found = (
        number("MLX_VERSION_MAJOR"),
        number("MLX_VERSION_MINOR"),
        number("MLX_VERSION_PATCH"),
    );
    let (major, minor, patch) = VERSION;
    if found == (Some(major), Some(minor), Some(patch)) {
        return Ok(());
    }
    Err(format!(
        "{} is not of MLX {major}.{minor}.{patch}, the version this project is written for: run \
         `cargo xtask setup`, or point MLXCEL_MLX_DIR at that version",
        header.display()
    ))
}

/// Links to everything beside the `mlx` folder that its library may look for, in the target folder.
fn mirror(prefix: &Path) -> Result<PathBuf, String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let site = out.join("site");
    let _ = fs::remove_dir_all(&site);
    let library = site.join("mlx/lib");
    let describe =
        |error: std::io::Error| format!("cannot link MLX into {}: {error}", site.display());
    fs::create_dir_all(&library).map_err(describe)?;
    for entry in fs::read_dir(prefix.join("lib")).map_err(describe)? {
        let entry = entry.map_err(describe)?;
        link(&entry.path(), &library.join(entry.file_name())).map_err(describe)?;
    }
    if let Some(beside) = prefix.parent() {
        for name in ["mlx_cpu.libs", "mlx_cuda_13.libs", "nvidia"] {
            if beside.join(name).exists() {
                link(&beside.join(name), &site.join(name)).map_err(describe)?;
            }
        }
    }
    Ok(library)
}

#[cfg(unix)]
fn link(original: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::Error::other(
        "MLX is linked on Linux and macOS only",
    ))
}
