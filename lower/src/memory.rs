//! How much memory a process took.

/// Bytes that were resident at most, where the system tells.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse(&status)
}

fn parse(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_report_is_read() {
        let check = |status, expect| assert_eq!(parse(status), expect, "{status}");
        check(
            "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n",
            Some(2048 * 1024),
        );
        check("Name:\tx\n", None);
        check("VmHWM:\t many kB\n", None);
    }
}
