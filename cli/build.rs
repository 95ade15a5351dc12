//! Lets the program find MLX: beside itself in a distribution, else where it was built against.
//!
//! MLX finds its own libraries at `../../mlx_cpu.libs`, so a distribution keeps that layout:
//! `mlxcel` beside (or in `bin` beside) `lib/mlx/lib/libmlx.so` and `lib/mlx_cpu.libs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_MLXCEL_RUNTIME_MLX_RPATH");
    let origin = match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "@loader_path",
        _ => "$ORIGIN",
    };
    println!("cargo::rustc-link-arg=-Wl,-rpath,{origin}/lib/mlx/lib");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{origin}/../lib/mlx/lib");
    if let Ok(path) = std::env::var("DEP_MLXCEL_RUNTIME_MLX_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{path}");
    }
}
