//! Compiles IREE's runtime to one static archive and generates its bindings.
//!
//! The source comes from `IREE_SOURCE_DIR` or from the crate eerie-sys. The tools (cmake, ninja,
//! libclang) and the headers of GPU drivers come from the environment or from what
//! `cargo xtask setup` put into `.deps`.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions that the bindings contain; types and constants follow from them.
const FUNCTIONS: &[&str] = &[
    "iree_allocator_free",
    "iree_async_proactor_pool_(create|options_default|release)",
    "iree_hal_buffer_(byte_length|release|subspan)",
    "iree_hal_buffer_view_(allocate_buffer_copy|buffer|create|element_type|release|retain|shape_dim|shape_rank)",
    "iree_hal_caching_allocator_create_from_spec",
    "iree_hal_create_all_available_executable_loaders",
    "iree_hal_cuda_(device_params_initialize|driver_create|driver_options_initialize)",
    "iree_hal_allocator_(create_heap|release)",
    "iree_hal_device_(allocator|release|replace_allocator|transfer_d2d|transfer_d2h|transfer_h2d)",
    "iree_hal_driver_(create_device_by_ordinal|query_available_devices|release)",
    "iree_hal_driver_registry_(allocate|free|try_create)",
    "iree_hal_executable_loader_release",
    "iree_hal_executable_plugin_manager_(create|register_provider|release)",
    "iree_hal_register_all_available_drivers",
    "iree_hal_sync_device_(create|params_initialize)",
    "iree_hal_task_device_(create|params_initialize)",
    "iree_io_file_handle_(release|wrap_host_allocation)",
    "iree_io_parameter_index_(add|create|provider_create|release)",
    "iree_io_parameter_provider_release",
    "iree_io_parameters_module_create",
    "iree_numa_node_count",
    "iree_runtime_instance_(create|options_initialize|vm_instance)",
    "iree_runtime_session_(append_module|call|create_with_device|options_initialize|release)",
    "iree_status_(allocate|free|to_string)",
    "iree_task_executor_(create|options_initialize|release)",
    "iree_task_topology_(deinitialize|initialize|initialize_from_group_count)",
    "iree_vm_bytecode_module_create",
    "iree_vm_function_(lookup_attr_by_name|name|signature)",
    "iree_vm_instance_lookup_type",
    "iree_vm_list_(clear|create|get_ref_retain|push_ref_retain|release|size)",
    "iree_vm_module_(lookup_function_by_ordinal|release|signature)",
    "iree_vm_ref_release",
];

/// Enumerations that no function's type reaches, since C passes their values as plain integers.
const ENUMERATIONS: &[&str] = &[
    "iree_hal_buffer_usage_bits_t",
    "iree_hal_element_types_t",
    "iree_hal_encoding_types_t",
    "iree_hal_memory_type_bits_t",
    "iree_io_file_access_bits_t",
    "iree_timeout_type_e",
];

fn main() {
    for file in ["build.rs", "CMakeLists.txt", "wrapper.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    if let Err(message) = build() {
        println!("cargo::error={message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let deps = Deps::new()?;
    let source = iree_source()?;
    let archives = compile(&deps, &source)?;
    println!("cargo::rustc-link-search=native={}", archives.display());
    println!("cargo::rustc-link-lib=static=mlxcel_iree_runtime");
    let flatcc = archives.join("iree/build_tools/third_party/flatcc");
    println!("cargo::rustc-link-search=native={}", flatcc.display());
    println!("cargo::rustc-link-lib=static=flatcc_parsing");
    let cxx = match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "c++",
        _ => "stdc++",
    };
    for library in ["dl", "m", "pthread", cxx] {
        println!("cargo::rustc-link-lib={library}");
    }
    generate_bindings(&deps, &source, &archives)
}

/// The folder `.deps` at the workspace root, filled by `cargo xtask setup`.
struct Deps(PathBuf);

impl Deps {
    fn new() -> Result<Self, String> {
        Ok(Self(manifest_dir()?.join("../../.deps")))
    }

    /// The setup's Python environment's copy of `program`, else the one in `PATH`.
    fn program(&self, program: &str) -> Result<PathBuf, String> {
        let path = env::var_os("PATH").unwrap_or_default();
        std::iter::once(self.0.join("python/bin"))
            .chain(env::split_paths(&path))
            .map(|folder| folder.join(program))
            .find(|file| file.is_file())
            .ok_or_else(|| format!("{program} was not found: run `cargo xtask setup`"))
    }

    /// The folder of libclang, unless the environment or the system provides it.
    fn libclang(&self) -> Option<PathBuf> {
        self.0
            .join("python/lib")
            .read_dir()
            .ok()?
            .flatten()
            .map(|entry| entry.path().join("site-packages/clang/native"))
            .find(|folder| folder.is_dir())
    }

    /// A folder with headers of a GPU driver: `variable`, else `folder` under `.deps`. `probe` is
    /// a file that must stand in it.
    fn headers(
        &self,
        variable: &str,
        folder: &str,
        probe: &str,
        option: &str,
    ) -> Result<PathBuf, String> {
        let headers = from_environment(variable).unwrap_or_else(|| self.0.join(folder));
        if headers.join(probe).is_file() {
            return headers
                .canonicalize()
                .map_err(|error| format!("{}: {error}", headers.display()));
        }
        Err(format!(
            "{} has no {probe}: run `cargo xtask setup {option}` or set {variable}",
            headers.display()
        ))
    }
}

fn manifest_dir() -> Result<PathBuf, String> {
    env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .ok_or_else(|| "CARGO_MANIFEST_DIR is not set".to_string())
}

fn from_environment(variable: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={variable}");
    env::var_os(variable).map(PathBuf::from)
}

fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

/// The root of an IREE source tree: `IREE_SOURCE_DIR`, else the one inside the crate eerie-sys,
/// wherever cargo keeps that.
fn iree_source() -> Result<PathBuf, String> {
    if let Some(source) = from_environment("IREE_SOURCE_DIR") {
        return Ok(source);
    }
    // Offline first: cargo has the crate already, and asking the network is slow where there is
    // none. It may lack a crate of another workspace member, which the second attempt fetches.
    let metadata = cargo_metadata(&["--offline"]).or_else(|_| cargo_metadata(&[]))?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "eerie-sys")
        .and_then(|package| package["manifest_path"].as_str())
        .map(|manifest| Path::new(manifest).with_file_name("iree"))
        .filter(|source| source.join("runtime").is_dir())
        .ok_or_else(|| "the crate eerie-sys holds no IREE source: set IREE_SOURCE_DIR".to_string())
}

fn cargo_metadata(options: &[&str]) -> Result<serde_json::Value, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Without the filter cargo wants the crates of every platform at hand.
    let target = env::var("TARGET").map_err(|error| format!("TARGET: {error}"))?;
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--filter-platform"])
        .arg(target)
        .arg("--manifest-path")
        .arg(manifest_dir()?.join("Cargo.toml"))
        .args(options)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata: {}", stderr.trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The folder to compile in: one per source and set of features, at the top of the target folder.
///
/// `OUT_DIR` will not do: cargo makes a new one per profile and whenever the features of some build
/// dependency change, and compiling takes minutes.
fn build_folder(source: &Path) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    for name in ["CUDA", "HIP", "VULKAN"] {
        feature(name).hash(&mut hasher);
    }
    env::var("TARGET").ok().hash(&mut hasher);
    let folder = out_dir()?
        .ancestors()
        .nth(4)
        .ok_or("OUT_DIR does not lie in a target folder")?
        .join(format!("iree-runtime/{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn out_dir() -> Result<PathBuf, String> {
    env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .ok_or_else(|| "OUT_DIR is not set".to_string())
}

/// Builds the archives and returns the folder that holds them.
fn compile(deps: &Deps, source: &Path) -> Result<PathBuf, String> {
    let folder = build_folder(source)?;
    // Two profiles may build at the same time. The lock goes with the file at the end.
    let lock = File::create(folder.join("lock")).map_err(|error| format!("lock: {error}"))?;
    lock.lock().map_err(|error| format!("lock: {error}"))?;
    let switch = |on| if on { "ON" } else { "OFF" };
    let mut config = cmake::Config::new(".");
    config
        .profile("Release")
        .generator("Ninja")
        .out_dir(&folder)
        .define("CMAKE_MAKE_PROGRAM", deps.program("ninja")?)
        .define("IREE_SOURCE", source)
        .define("IREE_HAL_DRIVER_LOCAL_SYNC", "ON")
        .define("IREE_HAL_DRIVER_LOCAL_TASK", "ON")
        .define("IREE_HAL_DRIVER_CUDA", switch(feature("CUDA")))
        .define("IREE_HAL_DRIVER_HIP", switch(feature("HIP")))
        .define("IREE_HAL_DRIVER_VULKAN", switch(feature("VULKAN")))
        // The loader of IREE's own bytecode must stay out: each device that has it makes a second VM
        // instance, which resets process-wide type numbers under calls of other threads.
        .define("IREE_HAL_EXECUTABLE_LOADER_EMBEDDED_ELF", "ON")
        .build_target("mlxcel_iree_runtime");
    for option in [
        "IREE_BUILD_BENCHMARKS",
        "IREE_BUILD_BINDINGS_TFLITE",
        "IREE_BUILD_COMPILER",
        "IREE_BUILD_PYTHON_BINDINGS",
        "IREE_BUILD_SAMPLES",
        "IREE_BUILD_TESTS",
        "IREE_ENABLE_LIBBACKTRACE",
        "IREE_HAL_DRIVER_AMDGPU",
        "IREE_HAL_DRIVER_DEFAULTS",
        "IREE_HAL_DRIVER_NULL",
        "IREE_HAL_EXECUTABLE_LOADER_SYSTEM_LIBRARY",
        "IREE_HAL_EXECUTABLE_LOADER_VMVX_MODULE",
    ] {
        config.define(option, "OFF");
    }
    if feature("CUDA") {
        let headers = deps.headers(
            "IREE_CUDA_DEPS_DIR",
            "cuda-headers",
            "include/cuda.h",
            "--cuda",
        )?;
        config.env("IREE_CUDA_DEPS_DIR", headers);
    }
    if feature("HIP") {
        let headers = deps.headers(
            "HIP_API_HEADERS_ROOT",
            "hip-headers",
            "hip/hip_version.h",
            "--rocm",
        )?;
        config.define("HIP_API_HEADERS_ROOT", headers);
    }
    // The crate cmake reads the program to run from the variable CMAKE alone.
    if env::var_os("CMAKE").is_none() {
        let cmake = deps.program("cmake")?;
        // SAFETY: a build script's main thread is its only one here.
        unsafe { env::set_var("CMAKE", cmake) };
    }
    Ok(config.build().join("build"))
}

fn generate_bindings(deps: &Deps, source: &Path, archives: &Path) -> Result<(), String> {
    if from_environment("LIBCLANG_PATH").is_none()
        && let Some(folder) = deps.libclang()
    {
        // SAFETY: a build script's main thread is its only one here.
        unsafe { env::set_var("LIBCLANG_PATH", folder) };
    }
    let out = out_dir()?;
    let mut builder = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_arg(format!("-I{}", source.join("runtime/src").display()))
        .clang_arg(format!("-I{}", archives.join("iree/runtime/src").display()))
        .clang_arg(format!(
            "-I{}",
            source.join("third_party/flatcc/include").display()
        ))
        .derive_default(true)
        .layout_tests(false)
        .generate_comments(false)
        .prepend_enum_name(true);
    if feature("CUDA") {
        builder = builder.clang_arg("-DMLXCEL_CUDA");
    }
    if let Some(headers) = compiler_headers() {
        builder = builder.clang_arg(format!("-I{headers}"));
    }
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    for enumeration in ENUMERATIONS {
        builder = builder.allowlist_type(enumeration);
    }
    builder
        .generate()
        .map_err(|error| format!("bindgen: {error}"))?
        .write_to_file(out.join("bindings.rs"))
        .map_err(|error| format!("bindings.rs: {error}"))
}

/// The C compiler's own headers (`stddef.h` and its kin), which a libclang without a clang beside
/// it lacks.
fn compiler_headers() -> Option<String> {
    let compiler = from_environment("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .arg("-print-file-name=include")
        .output()
        .ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_string();
    Path::new(&folder).is_absolute().then_some(folder)
}
