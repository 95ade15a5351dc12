//! Floating-point numbers of four and eight bits.

/// The number of a code of four bits: one sign, two exponent and one mantissa bit (E2M1 of the
/// OCP Microscaling specification). Higher bits are not looked at.
pub const fn e2m1(code: u8) -> f32 {
    const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let size = SIZES[(code & 7) as usize];
    if code & 8 == 0 { size } else { -size }
}

/// The number of a byte of one sign, four exponent and three mantissa bits: E4M3 of the OCP 8-bit
/// specification, which has no infinities and one NaN of each sign.
pub const fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = ((code >> 3 & 15) as u32, (code & 7) as u32);
    let size = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        // Steps of 2^-9.
        (0, steps) => steps as f32 * 0.001_953_125,
        _ => f32::from_bits((exponent + 120) << 23 | mantissa << 20),
    };
    if code & 0x80 == 0 { size } else { -size }
}

/// The scale of a byte that is an exponent: `2^(code - 127)`, and NaN for 255 (E8M0 of the OCP
/// Microscaling specification).
pub const fn e8m0(code: u8) -> f32 {
    match code {
        // 2^-127 is subnormal.
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_numbers_of_the_specification() {
        let check = |found: f32, expect: f64| assert_eq!(f64::from(found), expect);
        check(e2m1(1), 0.5);
        check(e2m1(7), 6.0);
        check(e2m1(0x0d), -3.0);
        check(e4m3(0x38), 1.0);
        check(e4m3(0x7e), 448.0);
        check(e4m3(0x08), 2f64.powi(-6));
        check(e4m3(0x81), -(2f64.powi(-9)));
        check(e8m0(127), 1.0);
        check(e8m0(254), 2f64.powi(127));
        check(e8m0(0), 2f64.powi(-127));
        assert!(e4m3(0xff).is_nan() && e8m0(255).is_nan());
    }
}
