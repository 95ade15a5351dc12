//! Lets this crate's tests and examples find MLX when they are started outside of cargo, and tells
//! dependents where it is: `DEP_MLXCEL_RUNTIME_MLX_RPATH`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_MLX_RPATH");
    if let Ok(path) = std::env::var("DEP_MLX_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{path}");
        println!("cargo::metadata=rpath={path}");
    }
}
