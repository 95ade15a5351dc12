//! The compiling process by itself, for programs that cannot start themselves again, such as tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    mlxcel_lower::child::main().unwrap_or_else(|| {
        eprintln!("this program is started by others, to compile");
        ExitCode::from(2)
    })
}
