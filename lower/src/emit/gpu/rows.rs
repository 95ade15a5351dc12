//! Norms, rotary embedding and rows of tables.

use super::code::{Code, LANES, Memory, Value};
use super::linear::Matrix;
use mlxcel_ir::Pairing;

/// Threads of a workgroup that norms a row of `width` numbers.
pub(super) fn norm_threads(width: usize) -> usize {
    width.div_ceil(4).next_power_of_two().clamp(LANES, 1024)
}

/// `x / sqrt(mean(x²) + epsilon) * (offset + weight)`: each workgroup a row of `width` numbers.
pub(super) fn rms_norm(
    code: &mut Code,
    width: usize,
    [epsilon, offset]: [f64; 2],
    x: &Memory,
    weight: Option<&Memory>,
    out: &Memory,
) {
    let threads = norm_threads(width);
    let thread = code.thread();
    let row = code.workgroup();
    let base = code.multiply(row, width);
    let (end, step) = (code.index(width), code.index(threads));
    let zero = code.float(0.0);
    let sum = code.repeat([thread, end, step], &[(zero, "f32")], |code, at, sum| {
        let at = code.add(base, at);
        let x = code.load(x, at);
        vec![code.fma(x, x, sum[0], "f32")]
    });
    let sum = over_threads(code, sum[0], thread, threads);
    let share = code.float(1.0 / width as f64);
    let epsilon = code.float(epsilon);
    let mean = code.fma(sum, share, epsilon, "f32");
    let root = code.math("sqrt", mean);
    let offset = code.float(offset);
    code.repeat([thread, end, step], &[], |code, column, _| {
        let at = code.add(base, column);
        let number = code.load(x, at);
        let mut number = code.floats("divf", number, root);
        if let Some(weight) = weight {
            let factor = code.load_float(weight, column);
            let factor = code.floats("addf", offset, factor);
            number = code.floats("mulf", number, factor);
        }
        code.store(number, out, at);
        Vec::new()
    });
}

/// The sum of a number of each of `threads` threads, for all of them.
fn over_threads(code: &mut Code, own: Value, thread: Value, threads: usize) -> Value {
    let sum = code.across("addf", own, 1, LANES);
    let squads = threads / LANES;
    if squads == 1 {
        return sum;
    }
    let sums = code.shared(squads);
    let squad = code.divide(thread, LANES);
    let lane = code.remainder(thread, LANES);
    let zero = code.index(0);
    let first = code.compare("eq", lane, zero);
    code.when(first, |code| code.store(sum, &sums, squad));
    code.barrier();
    let mut total = code.float(0.0);
    for squad in 0..squads {
        let at = code.index(squad);
        let sum = code.load(&sums, at);
        total = code.floats("addf", total, sum);
    }
    total
}

/// How heads turn.
pub(super) struct Turn {
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) dims: usize,
    pub(super) pairing: Pairing,
    pub(super) magnitude: f64,
}

/// Rotary embedding of one token: each workgroup a head of a row, each thread a pair or a number that
/// passes. `frequencies` has the radians per position of each pair.
pub(super) fn rope(
    code: &mut Code,
    turn: &Turn,
    [x, start, frequencies, out]: [&Memory; 4],
) {
    let workgroup = code.workgroup();
    let thread = code.thread();
    let row = code.divide(workgroup, turn.heads);
    let position = code.load(start, row);
    let position = code.value(format_args!("arith.sitofp {position} : i32 to f32"));
    let base = code.multiply(workgroup, turn.width);
    let pairs = turn.dims / 2;
    let (zero, one) = (code.index(0), code.index(1));
    let (pair_end, step) = (code.index(pairs), code.index(LANES));
    code.repeat([thread, pair_end, step], &[], |code, pair, _| {
        let frequency = code.load(frequencies, pair);
        let angle = code.floats("mulf", position, frequency);
        let (mut cosine, mut sine) = (code.math("cos", angle), code.math("sin", angle));
        if turn.magnitude != 1.0 {
            let magnitude = code.float(turn.magnitude);
            cosine = code.floats("mulf", cosine, magnitude);
            sine = code.floats("mulf", sine, magnitude);
        }
        let (low, high) = match turn.pairing {
            Pairing::Half => {
                let half = code.index(pairs);
                (pair, code.add(pair, half))
            }
            Pairing::Interleaved => {
                let low = code.multiply(pair, 2);
                (low, code.add(low, one))
            }
        };
        let (low, high) = (code.add(base, low), code.add(base, high));
        let [a, b] = [low, high].map(|at| code.load(x, at));
        let [a_cosine, b_sine] = [(a, cosine), (b, sine)].map(|(a, b)| code.floats("mulf", a, b));
        let turned = code.floats("subf", a_cosine, b_sine);
        code.store(turned, out, low);
        let [b_cosine, a_sine] = [(b, cosine), (a, sine)].map(|(a, b)| code.floats("mulf", a, b));
        let turned = code.floats("addf", b_cosine, a_sine);
        code.store(turned, out, high);
        Vec::new()
    });
    if turn.dims < turn.width {
        let _ = zero;
        let first = code.index(turn.dims);
        let from = code.add(thread, first);
        let end = code.index(turn.width);
        code.repeat([from, end, step], &[], |code, column, _| {
            let at = code.add(base, column);
            let number = code.load(x, at);
            code.store(number, out, at);
            Vec::new()
        });
    }
}

/// Threads of a workgroup that copies a row of a table.
pub(super) const COPY_THREADS: usize = 128;

/// The rows of a table that `tokens` name, each by a workgroup.
pub(super) fn embedding(code: &mut Code, table: &Matrix, tokens: &Memory, out: &Memory) {
    let row = code.workgroup();
    let thread = code.thread();
    let token = code.load(tokens, row);
    let token = code.value(format_args!("arith.index_cast {token} : i32 to index"));
    // Whatever a caller asks for, only rows of the table are read.
    let last = code.index(table.rows - 1);
    let token = code.arith("minui", token, last, "index");
    let runs = table.width() / 8;
    let base = code.multiply(token, runs);
    let (end, step) = (code.index(runs), code.index(COPY_THREADS));
    let target = code.multiply(row, table.width());
    code.repeat([thread, end, step], &[], |code, run, _| {
        let at = code.add(base, run);
        let numbers = table.numbers(code, at);
        let to = code.multiply(run, 8);
        let to = code.add(target, to);
        for part in 0..8 {
            let number = code.extract(numbers, part, 8);
            let offset = code.index(part);
            let at = code.add(to, offset);
            code.store(number, out, at);
        }
        Vec::new()
    });
}

/// Threads of a workgroup that computes numbers one by one.
pub(super) const EACH_THREADS: usize = 128;

/// `body` for each of `count` numbers, by a thread each.
pub(super) fn each(code: &mut Code, count: usize, body: impl FnOnce(&mut Code, Value)) {
    let workgroup = code.workgroup();
    let thread = code.thread();
    let first = code.multiply(workgroup, EACH_THREADS);
    let at = code.add(first, thread);
    let end = code.index(count);
    let inside = code.compare("ult", at, end);
    code.when(inside, |code| body(code, at));
}

/// Threads of a workgroup that searches a row.
pub(super) const ARGMAX_THREADS: usize = 1024;

/// The place of the largest number of each row of `width` numbers, the first of equals: each workgroup a
/// row.
pub(super) fn argmax(code: &mut Code, width: usize, x: &Memory, out: &Memory) {
    let row = code.workgroup();
    let thread = code.thread();
    let base = code.multiply(row, width);
    let (end, step) = (code.index(width), code.index(ARGMAX_THREADS));
    let zero = code.index(0);
    let none = code.value("arith.constant 0xFF800000 : f32");
    // Beyond the end, so that any place is before it.
    let nowhere = code.index(width);
    let initial = [(none, "f32"), (nowhere, "index")];
    let own = code.repeat([thread, end, step], &initial, |code, at, best| {
        let place = code.add(base, at);
        let number = code.load(x, place);
        let larger = code.value(format_args!("arith.cmpf ogt, {number}, {} : f32", best[0]));
        vec![
            code.select(larger, number, best[0], "f32"),
            code.select(larger, at, best[1], "index"),
        ]
    });
    let largest = code.across("maximumf", own[0], 1, LANES);
    let squads = ARGMAX_THREADS / LANES;
    let (numbers, places) = (code.shared(squads), code.shared(squads));
    let squad = code.divide(thread, LANES);
    let lane = code.remainder(thread, LANES);
    let first = code.compare("eq", lane, zero);
    code.when(first, |code| code.store(largest, &numbers, squad));
    code.barrier();
    let mut best = none;
    for squad in 0..squads {
        let at = code.index(squad);
        let number = code.load(&numbers, at);
        best = code.floats("maximumf", best, number);
    }
    // As f32, which is exact below 2^24 entries.
    let place = code.value(format_args!("arith.index_cast {} : index to i32", own[1]));
    let place = code.value(format_args!("arith.sitofp {place} : i32 to f32"));
    let holds = code.value(format_args!("arith.cmpf oeq, {}, {best} : f32", own[0]));
    let far = code.float(width as f64);
    let place = code.select(holds, place, far, "f32");
    let place = code.across("minimumf", place, 1, LANES);
    code.when(first, |code| code.store(place, &places, squad));
    code.barrier();
    let leader = code.compare("eq", thread, zero);
    code.when(leader, |code| {
        let mut least = far;
        for squad in 0..squads {
            let at = code.index(squad);
            let place = code.load(&places, at);
            least = code.floats("minimumf", least, place);
        }
        let least = code.value(format_args!("arith.fptosi {least} : f32 to i32"));
        code.store(least, out, row);
    });
}
