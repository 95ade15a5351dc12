//! Panels of rows: how [`super::WeightFormat::Panels`] arranges the parts of rows.
//!
//! Sixteen rows stand together, so that a vector holds a number of each: a product needs no sum over
//! its lanes, and one load has the scales of all. A word of codes is eight columns of one row, and the
//! words of the sixteen rows follow each other; then come the next columns. In a word, byte `i` has
//! column `i` in its lower four bits and column `i + 4` in its upper. Scales, and biases, of the rows
//! stand together in the same way.

/// Rows of a panel.
pub const PANEL: usize = 16;
/// Columns of a word of codes.
const COLUMNS: usize = 8;

/// Part `index` of a weight ([`super::WeightDecl::parts`]) of `rows` rows, stored row after row, as
/// panels. `size` is that of its elements.
pub fn part_to_panels(index: usize, part: &[u8], size: usize, rows: usize) -> Vec<u8> {
    match index {
        0 => codes_to_panels(part, rows),
        _ => sides_to_panels(part, size, rows),
    }
}

/// Undoes [`part_to_panels`].
pub fn part_to_rows(index: usize, part: &[u8], size: usize, rows: usize) -> Vec<u8> {
    match index {
        0 => codes_to_rows(part, rows),
        _ => sides_to_rows(part, size, rows),
    }
}

/// The codes of `rows` rows, packed row after row, as panels.
///
/// `codes` has whole panels, and rows of whole words; what does not fill them is left out.
fn codes_to_panels(codes: &[u8], rows: usize) -> Vec<u8> {
    let words = codes.chunks_exact(4).map(|word| spread(little(word)));
    let panels = arrange(&words.collect::<Vec<u32>>(), rows, to_panel);
    panels.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Undoes [`codes_to_panels`].
fn codes_to_rows(codes: &[u8], rows: usize) -> Vec<u8> {
    let words = codes.chunks_exact(4).map(|word| gather(little(word)));
    let panels = arrange(&words.collect::<Vec<u32>>(), rows, to_row);
    panels.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Scales or biases of `size` bytes, those of each row together, as panels.
fn sides_to_panels(sides: &[u8], size: usize, rows: usize) -> Vec<u8> {
    arrange(&elements(sides, size), rows, to_panel).concat()
}

/// Undoes [`sides_to_panels`].
fn sides_to_rows(sides: &[u8], size: usize, rows: usize) -> Vec<u8> {
    arrange(&elements(sides, size), rows, to_row).concat()
}

/// Where element `column` of row `row` of a panel stands, with `columns` in a row.
fn to_panel(row: usize, column: usize, columns: usize) -> [usize; 2] {
    [row * columns + column, column * PANEL + row]
}

fn to_row(row: usize, column: usize, columns: usize) -> [usize; 2] {
    let [row, panel] = to_panel(row, column, columns);
    [panel, row]
}

/// The elements of each panel in another order: `places` says from where to where.
fn arrange<T: Copy>(
    elements: &[T],
    rows: usize,
    places: fn(usize, usize, usize) -> [usize; 2],
) -> Vec<T> {
    let columns = elements.len().checked_div(rows).unwrap_or(0);
    let mut arranged = elements.to_vec();
    let size = PANEL * columns;
    if size == 0 {
        return arranged;
    }
    let panels = elements
        .chunks_exact(size)
        .zip(arranged.chunks_exact_mut(size));
    for (from, to) in panels {
        for row in 0..PANEL {
            for column in 0..columns {
                let [source, target] = places(row, column, columns);
                to[target] = from[source];
            }
        }
    }
    arranged
}

fn elements(bytes: &[u8], size: usize) -> Vec<&[u8]> {
    bytes.chunks_exact(size.max(1)).collect()
}

fn little(word: &[u8]) -> u32 {
    word.iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// A word of eight codes in order, its lower four in the lower halves of bytes.
fn spread(word: u32) -> u32 {
    let half = |codes: u32| {
        let pairs = (codes | codes << 8) & 0x00ff_00ff;
        (pairs | pairs << 4) & 0x0f0f_0f0f
    };
    half(word & 0xffff) | half(word >> 16) << 4
}

/// Undoes [`spread`].
fn gather(word: u32) -> u32 {
    let half = |codes: u32| {
        let pairs = (codes | codes >> 4) & 0x00ff_00ff;
        (pairs | pairs >> 8) & 0xffff
    };
    half(word & 0x0f0f_0f0f) | half(word >> 4 & 0x0f0f_0f0f) << 16
}

/// Where code `column` of row `row` stands, in codes of rows of `columns`: its byte, and by how much
/// the byte is to be shifted.
pub(super) fn place(row: usize, column: usize, columns: usize) -> (usize, u32) {
    let word = row / PANEL * PANEL * columns / COLUMNS + column / COLUMNS * PANEL + row % PANEL;
    let within = column % COLUMNS;
    (word * 4 + within % 4, within as u32 / 4 * 4)
}

/// Where the side of group `group` of row `row` stands, in rows of `groups`.
pub(super) fn side(row: usize, group: usize, groups: usize) -> usize {
    row / PANEL * PANEL * groups + group * PANEL + row % PANEL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_hold_each_code_and_side_at_its_place() {
        for (rows, columns) in [(16, 32), (32, 64), (48, 8)] {
            let code = |row: usize, column: usize| ((row * 7 + column * 3) % 16) as u8;
            let packed: Vec<u8> = (0..rows * columns / 2)
                .map(|byte| {
                    let (row, column) = (2 * byte / columns, 2 * byte % columns);
                    code(row, column) | code(row, column + 1) << 4
                })
                .collect();
            let panels = codes_to_panels(&packed, rows);
            assert_eq!(codes_to_rows(&panels, rows), packed);
            for row in 0..rows {
                for column in 0..columns {
                    let (byte, shift) = place(row, column, columns);
                    assert_eq!(panels[byte] >> shift & 15, code(row, column));
                }
            }
            let sides: Vec<u8> = (0..rows * columns).map(|side| side as u8).collect();
            let arranged = sides_to_panels(&sides, 2, rows);
            assert_eq!(sides_to_rows(&arranged, 2, rows), sides);
            let groups = columns / 2;
            let at = 2 * side(rows - 3, 1, groups);
            let from = 2 * ((rows - 3) * groups + 1);
            assert_eq!(arranged[at..at + 2], sides[from..from + 2]);
        }
    }
}
