//! An artifact as one file.
//!
//! The file is a tar archive of the parts and then the manifest, in its plainest form: files alone, each
//! behind a header of one block and filled up to whole blocks with zeros. So `tar -xf` makes the folder of
//! it, every part begins at a multiple of [`BLOCK`] bytes and is used where the file is mapped, and there
//! is one way to write it: a header that is not the one that [`header`] makes is damage.

use super::MANIFEST;
use std::ops::Range;

/// The size of a header, and what parts are filled up to.
pub const BLOCK: usize = 512;

/// The most parts that are read: an artifact has some ten.
const PARTS: usize = 1000;

/// The longest name of a part.
const NAME: usize = 100;

/// The block before a part of `bytes` bytes, if its name fits.
pub fn header(name: &str, bytes: u64) -> Option<[u8; BLOCK]> {
    if name.is_empty() || name.len() > NAME || name.contains('\0') {
        return None;
    }
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    for (place, text) in [(100, "0000644"), (108, "0000000"), (116, "0000000")] {
        block[place..place + text.len()].copy_from_slice(text.as_bytes());
    }
    match bytes < 1 << 33 {
        true => block[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes()),
        // What GNU tar writes for more than octal digits can say.
        false => {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&bytes.to_be_bytes());
        }
    }
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = b'0';
    block[257..265].copy_from_slice(b"ustar\x0000");
    // The sum takes its own place for spaces.
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{:06o}\0 ", sum + 8 * u32::from(b' '));
    block[148..156].copy_from_slice(sum.as_bytes());
    Some(block)
}

/// How many zeros come after `bytes` bytes of a part.
pub fn fill(bytes: u64) -> usize {
    let over = (bytes % BLOCK as u64) as usize;
    (BLOCK - over) % BLOCK
}

/// Whether a file that begins with `start` looks like one that an artifact is in.
pub fn begins(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// The parts in `file` by name, the manifest last.
///
/// # Errors
/// Where the file is not as an artifact is written, with the part at whose place that is.
pub fn parts(file: &[u8]) -> Result<Vec<(String, Range<usize>)>, String> {
    let mut parts: Vec<(String, Range<usize>)> = Vec::new();
    let mut at = 0;
    loop {
        let after = match parts.last() {
            Some((name, _)) => format!("after `{name}`"),
            None => "at its beginning".to_string(),
        };
        let block = file.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>);
        let block = block.ok_or_else(|| format!("{after}: it ends"))?;
        let whole = parts.last().is_some_and(|(name, _)| name == MANIFEST);
        if whole {
            let rest = &file[at..];
            return match rest.len() == 2 * BLOCK && is_zero(rest) {
                true => Ok(parts),
                false => Err(format!("{after}: it does not end as it should")),
            };
        }
        let (name, bytes) =
            read_header(block).ok_or_else(|| format!("{after}: there is no header of a part"))?;
        if parts.len() >= PARTS || parts.iter().any(|(other, _)| *other == name) {
            return Err(format!(
                "`{name}`: it is there twice, or there are too many parts"
            ));
        }
        let start = at + BLOCK;
        let end = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| start.checked_add(bytes));
        let next = end.and_then(|end| Some((end, end.checked_add(fill(bytes))?)));
        let (end, next) = next
            .filter(|&(_, next)| next <= file.len())
            .ok_or_else(|| format!("`{name}`: its {bytes} bytes reach past the file's end"))?;
        if !is_zero(&file[end..next]) {
            return Err(format!("`{name}`: what fills its last block is not zero"));
        }
        parts.push((name, start..end));
        at = next;
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The name and size that a header says.
fn read_header(block: &[u8; BLOCK]) -> Option<(String, u64)> {
    let name = block[..NAME].split(|&byte| byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    let bytes = match block[124] {
        0x80 => u64::from_be_bytes(block[128..136].try_into().ok()?),
        _ => u64::from_str_radix(std::str::from_utf8(&block[124..135]).ok()?, 8).ok()?,
    };
    let same = header(name, bytes).is_some_and(|header| header == *block);
    same.then(|| (name.to_string(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        for (name, bytes) in parts {
            file.extend(header(name, bytes.len() as u64).unwrap());
            file.extend_from_slice(bytes);
            file.resize(file.len() + fill(bytes.len() as u64), 0);
        }
        file.resize(file.len() + 2 * BLOCK, 0);
        file
    }

    #[test]
    fn parts_are_found_again() {
        let long = vec![7; 1500];
        let file = archive(&[("a", b""), ("b/c", &long), (MANIFEST, b"{}")]);
        assert!(begins(&file));
        let found = parts(&file).unwrap();
        let expect = [("a", 512..512), ("b/c", 1024..2524), (MANIFEST, 3072..3074)];
        let expect = expect.map(|(name, range)| (name.to_string(), range));
        assert_eq!(found, expect);
        assert_eq!(file[found[1].1.clone()], long);
    }

    #[test]
    fn sizes_beyond_octal_digits_are_read() {
        for bytes in [0, 511, 1 << 32, (1 << 33) - 1, 1 << 33, u64::MAX] {
            let block = header("weights", bytes).unwrap();
            assert_eq!(read_header(&block), Some(("weights".into(), bytes)));
        }
        assert!(header(&"x".repeat(101), 1).is_none());
    }

    #[test]
    fn every_flipped_bit_outside_of_parts_is_found() {
        let file = archive(&[("a", b"abc"), (MANIFEST, b"{}")]);
        let inside = [512..515, 1536..1538];
        for place in 0..file.len() {
            if inside.iter().any(|range| range.contains(&place)) {
                continue;
            }
            for bit in 0..8 {
                let mut file = file.clone();
                file[place] ^= 1 << bit;
                assert!(parts(&file).is_err(), "bit {bit} of {place}");
            }
        }
        for length in 0..file.len() {
            assert!(parts(&file[..length]).is_err(), "{length} bytes");
        }
        let longer = [&file[..], &[0]].concat();
        assert!(parts(&longer).is_err());
        let twice = archive(&[("a", b"1"), ("a", b"2"), (MANIFEST, b"{}")]);
        assert!(parts(&twice).unwrap_err().contains("`a`"));
        assert!(parts(&archive(&[("a", b"1")])).is_err());
    }
}
