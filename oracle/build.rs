//! Lets the program find MLX where it was built against.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_MLXCEL_RUNTIME_MLX_RPATH");
    if let Ok(path) = std::env::var("DEP_MLXCEL_RUNTIME_MLX_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{path}");
    }
}
