//! What processor compiles.

/// This processor as the name of an architecture's level and, after it, features by LLVM's names,
/// as in `x86-64-v3+avxvnni`. It promises what the compiler may use on this machine and other
/// machines may lack.
pub(crate) fn chip() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        x86()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::env::consts::ARCH.to_string()
    }
}

/// What the system says of this processor: its model and all its features. Empty where it says
/// nothing.
pub(crate) fn description() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let wanted = [
        "vendor_id",
        "cpu family",
        "model",
        "flags",
        "CPU",
        "Features",
    ];
    let first = text.split("\n\n").next().unwrap_or_default();
    let lines = first
        .lines()
        .filter(|line| wanted.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(target_arch = "x86_64")]
fn x86() -> String {
    use std::arch::is_x86_feature_detected as detected;
    let second = detected!("sse4.2") && detected!("popcnt") && detected!("ssse3");
    let third = second
        && detected!("avx2")
        && detected!("bmi1")
        && detected!("bmi2")
        && detected!("f16c")
        && detected!("fma")
        && detected!("lzcnt")
        && detected!("movbe");
    let fourth = third
        && detected!("avx512f")
        && detected!("avx512bw")
        && detected!("avx512cd")
        && detected!("avx512dq")
        && detected!("avx512vl");
    let level = match (second, third, fourth) {
        (_, _, true) => "x86-64-v4",
        (_, true, _) => "x86-64-v3",
        (true, ..) => "x86-64-v2",
        _ => "x86-64",
    };
    let extra = [
        ("avx512vnni", detected!("avx512vnni")),
        ("avx512bf16", detected!("avx512bf16")),
        ("avx512fp16", detected!("avx512fp16")),
        ("avxvnni", detected!("avxvnni")),
    ];
    let mut chip = level.to_string();
    for (name, _) in extra.iter().filter(|(_, present)| *present) {
        chip.push('+');
        chip.push_str(name);
    }
    chip
}
