//! Artifacts for AMD GPUs where there is none: how far they load on a library that stands for the driver
//! (`stub.c`), and what is said of one that is missing, too old or of another chip.
//!
//! `cargo xtask hip` builds IREE's driver and runs this. The system's loader takes the place of libraries from
//! the environment at the start of a process, so each case is a process of its own.

#[path = "../execution/toy.rs"]
#[allow(dead_code)]
mod toy;

use mlxcel_frontend::artifact::{MANIFEST, MODULE, Manifest};
use mlxcel_runtime_iree::{Artifact, Device, Runtime};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What names the artifact to the process of a case.
const ARTIFACT: &str = "MLXCEL_TEST_ARTIFACT";

/// The chip of the artifact and the number of its code objects.
const CHIP: &str = "gfx1100";
const MACH: &str = "0x41";
/// The same of gfx1151.
const OTHER: &str = "0x4a";

/// Loads the artifact of the environment and tells how it went; nothing when run as a test.
#[test]
fn case() {
    let Some(folder) = std::env::var_os(ARTIFACT) else {
        return;
    };
    let load = || {
        let artifact = Artifact::open(Path::new(&folder))?;
        let device = Device::open(artifact.default_device()?)?;
        println!("device: {:?}", device.name());
        Runtime::new(&artifact, &device)
    };
    match load() {
        Ok(_) => println!("loaded"),
        Err(error) => println!("error: {error}"),
    }
}

/// The stub as a library in a folder of its own.
fn stub(folder: &Path, options: &[&str]) -> PathBuf {
    fs::create_dir(folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hip/stub.c");
    let compiled = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(folder.join("libamdhip64.so"))
        .arg(source)
        .args(options)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{messages}");
    folder.to_path_buf()
}

/// The toy for an AMD GPU.
fn artifact() -> Option<tempfile::TempDir> {
    let flags = [
        "--iree-hal-target-device=hip",
        &format!("--iree-rocm-target={CHIP}"),
    ];
    let module = toy::compile(&toy::program(), &flags)?;
    let folder = toy::artifact()?;
    fs::write(folder.path().join(MODULE), &module).unwrap();
    let path = folder.path().join(MANIFEST);
    let mut manifest: Manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest.target = "iree-rocm".into();
    manifest.chip = CHIP.into();
    manifest.parts.insert(MODULE.into(), toy::part(&module));
    manifest.seal = manifest.digest();
    fs::write(path, serde_json::to_vec(&manifest).unwrap()).unwrap();
    Some(folder)
}

#[test]
fn every_way_to_fail_is_told() {
    let Some(artifact) = artifact() else { return };
    let folder = tempfile::tempdir().unwrap();
    let current = stub(&folder.path().join("current"), &[]);
    let old = stub(&folder.path().join("old"), &["-DOLD"]);
    let check = |library: Option<&Path>, settings: [&str; 2], expect: &[&str]| {
        let [devices, mach] = settings;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "case", "--nocapture"]);
        command.env(ARTIFACT, artifact.path());
        command
            .env("STUB_HIP_DEVICES", devices)
            .env("STUB_HIP_MACH", mach);
        match library {
            Some(library) => command.env("LD_LIBRARY_PATH", library),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{errors}");
        for part in expect {
            assert!(said.contains(part), "{part}: {said}{errors}");
        }
    };
    check(
        None,
        ["1", MACH],
        &["device `hip:0` cannot be opened", "libamdhip64.so", "ROCm"],
    );
    check(
        Some(&old),
        ["1", MACH],
        &[
            "device `hip:0` cannot be opened",
            "hipLaunchHostFunc",
            "version 6 or newer",
        ],
    );
    check(
        Some(&current),
        ["0", MACH],
        &["device `hip:0` cannot be opened", "hipErrorNoDevice"],
    );
    check(
        Some(&current),
        ["1", OTHER],
        &[
            "Stub GPU",
            MODULE,
            "hipErrorNoBinaryForGpu",
            "gfx1100, and hip:0 is Stub GPU",
            "--chip",
        ],
    );
    // The code is taken; what ends the load is that the library starts none.
    check(
        Some(&current),
        ["1", MACH],
        &[
            "device: Some(\"Stub GPU\")",
            "error: ",
            "hipErrorNotSupported",
        ],
    );
}
