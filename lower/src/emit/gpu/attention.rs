//! Attention of one new token of each row to its cache.
//!
//! A workgroup computes one head of one row. Eight lanes read a cached position together, so that
//! [`LANES`] read four; each such team keeps the largest score it met, the sum of its shares and its mix
//! of values, which are put together at the end.

use super::code::{Code, LANES, Memory, Value};
use super::rows::Norm;
use mlxcel_ir::Pairing;

/// Threads of a workgroup.
pub(super) const THREADS: usize = 512;

/// Lanes that read a position together.
const TEAM: usize = 8;

/// Numbers that a lane reads at a time.
const RUN: usize = 4;

/// Numbers that a team reads at a time: widths are multiples of it.
pub(super) const STRIPE: usize = TEAM * RUN;

/// The largest width, for which what a thread keeps still fits into its registers.
pub(super) const WIDEST: usize = 256;

/// What attention is computed for.
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) width: usize,
    pub(super) capacity: usize,
    pub(super) rows: usize,
    pub(super) scale: f64,
    pub(super) window: Option<usize>,
    pub(super) chunk: Option<usize>,
    pub(super) softcap: Option<f64>,
    /// How queries and keys turn before.
    pub(super) turn: Option<Turn>,
}

/// How heads turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) dims: usize,
    pub(super) pairing: Pairing,
    pub(super) magnitude: f64,
}

/// Whether a lane holds both numbers of each of its pairs.
pub(super) fn turns(turn: Turn) -> bool {
    let whole = match turn.pairing {
        Pairing::Half => 2 * STRIPE,
        Pairing::Interleaved => STRIPE,
    };
    turn.dims.is_multiple_of(whole)
}

/// The buffers, each as in `attention(q, k, v, start) [sinks]` and its cache.
pub(super) struct Buffers {
    pub(super) q: Memory,
    pub(super) k: Memory,
    pub(super) v: Memory,
    /// Norms of the heads of queries and keys, before they turn.
    pub(super) q_norm: Option<Norm>,
    pub(super) k_norm: Option<Norm>,
    /// The radians per position of each pair that turns.
    pub(super) frequencies: Option<Memory>,
    pub(super) start: Memory,
    pub(super) sinks: Option<Memory>,
    pub(super) keys: Memory,
    pub(super) values: Memory,
    pub(super) out: Memory,
}

/// Smaller than any score.
const NOTHING: f64 = -1e30;

/// What a team has gathered: the largest score, the sum of shares relative to it, and the mix.
#[derive(Clone)]
struct Gathered {
    largest: Value,
    sum: Value,
    mix: Vec<Value>,
}

impl Gathered {
    fn values(&self) -> Vec<Value> {
        [&[self.largest, self.sum], &self.mix[..]].concat()
    }

    fn from(values: &[Value]) -> Self {
        Self {
            largest: values[0],
            sum: values[1],
            mix: values[2..].to_vec(),
        }
    }
}

/// Writes the kernel.
pub(super) fn write(code: &mut Code, shape: &Shape, buffers: &Buffers) {
    let thread = code.thread();
    let workgroup = code.workgroup();
    let row = code.divide(workgroup, shape.heads);
    let head = code.remainder(workgroup, shape.heads);
    let group = shape.heads / shape.kv_heads;
    let kv_head = code.divide(head, group);
    let lane = code.remainder(thread, LANES);
    let squad = code.divide(thread, LANES);
    let member = code.remainder(lane, TEAM);
    let team = code.divide(lane, TEAM);
    let start = code.load(&buffers.start, row);
    let start = code.value(format_args!("arith.index_cast {start} : i32 to index"));

    // The lane's part of each stripe of a head.
    let part = code.multiply(member, RUN);
    let q_row = code.multiply(workgroup, shape.width);
    let q_row = code.add(q_row, part);
    let stripes = shape.width / STRIPE;
    let zero = code.index(0);
    let new_row = code.multiply(row, shape.kv_heads);
    let new_row = code.add(new_row, kv_head);
    let new_row = code.multiply(new_row, shape.width);
    let new_row = code.add(new_row, part);
    let angles = Angles::new(code, shape, buffers, start, part);
    let stripes_of = |code: &mut Code, memory: &Memory, at: Value, norm: Option<&Norm>| {
        let heads = (0..stripes).map(|stripe| load_stripe(code, memory, at, stripe));
        let mut heads: Vec<Value> = heads.collect();
        if let Some(norm) = norm {
            heads = normed(code, norm, &heads, part, shape.width);
        }
        match &angles {
            Some(angles) => angles.turn(code, heads),
            None => heads,
        }
    };
    let mut q = stripes_of(code, &buffers.q, q_row, buffers.q_norm.as_ref());
    let new_key = stripes_of(code, &buffers.k, new_row, buffers.k_norm.as_ref());
    let new_value: Vec<Value> = (0..stripes)
        .map(|stripe| load_stripe(code, &buffers.v, new_row, stripe))
        .collect();
    // As the cache has them: what a token reads of itself is what later tokens read of it.
    let [kept_key, kept_value] = [&new_key, &new_value].map(|new| -> Vec<Value> {
        let kept = new
            .iter()
            .map(|&numbers| code.narrow(numbers, &buffers.keys, RUN));
        kept.collect()
    });
    let [new_key, new_value] = [&kept_key, &kept_value].map(|kept| -> Vec<Value> {
        let numbers = kept
            .iter()
            .map(|&kept| code.widen(kept, &buffers.keys, RUN));
        numbers.collect()
    });
    let scale = code.float(shape.scale);
    let scale = code.broadcast(scale, RUN);
    for q in &mut q {
        *q = code.arith("mulf", *q, scale, "vector<4xf32>");
    }

    // The first team of the first head of a group appends to the cache; nobody reads there in this
    // step.
    let of_group = code.remainder(head, group);
    let first_head = code.compare("eq", of_group, zero);
    let team_end = code.index(TEAM);
    let first_team = code.compare("ult", thread, team_end);
    let appends = code.arith("andi", first_head, first_team, "i1");
    let stride = shape.kv_heads * shape.width;
    let cache_row = code.multiply(row, shape.capacity * stride);
    let head_offset = code.multiply(kv_head, shape.width);
    let cache_row = code.add(cache_row, head_offset);
    code.when(appends, |code| {
        let place = place_of(code, shape, start);
        let offset = code.multiply(place, stride);
        let to = code.add(cache_row, offset);
        let to = code.add(to, part);
        for (new, cache) in [(&kept_key, &buffers.keys), (&kept_value, &buffers.values)] {
            for (stripe, &kept) in new.iter().enumerate() {
                let offset = code.index(stripe * STRIPE);
                let at = code.add(to, offset);
                code.store_vector(kept, cache, at, RUN);
            }
        }
    });

    let first = first_seen(code, shape, start);
    let nothing = code.float(NOTHING);
    let none = code.float(0.0);
    let empty = code.value("arith.constant dense<0.0> : vector<4xf32>");
    let initial = Gathered {
        largest: nothing,
        sum: none,
        mix: vec![empty; stripes],
    };
    let types: Vec<(Value, &str)> = initial
        .values()
        .into_iter()
        .enumerate()
        .map(|(index, value)| (value, if index < 2 { "f32" } else { "vector<4xf32>" }))
        .collect();
    let squads = THREADS / LANES;
    let teams = LANES / TEAM;
    let offset = code.multiply(squad, teams);
    let from = code.add(first, offset);
    let step = code.index(squads * teams);
    let one = code.index(1);
    let gathered = code.repeat([from, start, step], &types, |code, at, gathered| {
        let position = code.add(at, team);
        let valid = code.compare("ult", position, start);
        // Where there is none, the last one is read and does not count.
        let last = code.arith("subi", start, one, "index");
        let position = code.arith("minui", position, last, "index");
        let place = place_of(code, shape, position);
        let offset = code.multiply(place, stride);
        let at = code.add(cache_row, offset);
        let at = code.add(at, part);
        let gathered = Gathered::from(gathered);
        let [key, value] = [&buffers.keys, &buffers.values].map(|cache| -> Vec<Value> {
            let cached = (0..stripes).map(|stripe| load_stripe(code, cache, at, stripe));
            cached.collect()
        });
        attend(code, shape, &q, [&key, &value], valid, &gathered).values()
    });
    let gathered = Gathered::from(&gathered);
    let new = [&new_key[..], &new_value[..]];
    let gathered = attend(code, shape, &q, new, first_team, &gathered);
    let gathered = over_teams(code, &gathered);
    let output = Output {
        squads,
        thread,
        lane,
        squad,
        head,
        row: code.multiply(workgroup, shape.width),
        part,
    };
    combine(code, shape, buffers, &gathered, &output);
}

fn load_stripe(code: &mut Code, memory: &Memory, at: Value, stripe: usize) -> Value {
    let offset = code.index(stripe * STRIPE);
    let at = code.add(at, offset);
    code.load_floats(memory, at, RUN)
}

/// The row of the cache that a position has.
fn place_of(code: &mut Code, shape: &Shape, position: Value) -> Value {
    match shape.window.or(shape.chunk) {
        Some(_) => code.remainder(position, shape.capacity.max(1)),
        None => position,
    }
}

/// The first position that the new token at `start` sees.
fn first_seen(code: &mut Code, shape: &Shape, start: Value) -> Value {
    let mut first = code.index(0);
    if let Some(window) = shape.window {
        // As many as are cached, at most a window less the new one.
        let before = code.index(window.saturating_sub(1));
        let seen = code.arith("minui", start, before, "index");
        first = code.arith("subi", start, seen, "index");
    }
    if let Some(chunk) = shape.chunk {
        let number = code.divide(start, chunk.max(1));
        let own = code.multiply(number, chunk.max(1));
        first = code.arith("maxui", first, own, "index");
    }
    first
}

/// Cosines and sines of a lane's pairs, in vectors as the numbers of a head lie.
struct Angles {
    turn: Turn,
    cosines: Vec<Value>,
    sines: Vec<Value>,
}

impl Angles {
    /// Those at the position `start`, if heads turn.
    fn new(
        code: &mut Code,
        shape: &Shape,
        buffers: &Buffers,
        start: Value,
        part: Value,
    ) -> Option<Self> {
        let turn = shape.turn?;
        let frequencies = buffers.frequencies.as_ref()?;
        let position = code.value(format_args!("arith.index_cast {start} : index to i32"));
        let position = code.value(format_args!("arith.sitofp {position} : i32 to f32"));
        let (vectors, pairs) = match turn.pairing {
            Pairing::Half => (turn.dims / STRIPE / 2, RUN),
            Pairing::Interleaved => (turn.dims / STRIPE, RUN / 2),
        };
        let first = code.divide(part, RUN / pairs);
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for vector in 0..vectors {
            let offset = code.index(vector * TEAM * pairs);
            let at = code.add(first, offset);
            let [mut cosine, mut sine] = [(); 2].map(|()| Vec::new());
            for pair in 0..pairs {
                let pair = code.index(pair);
                let at = code.add(at, pair);
                let frequency = code.load(frequencies, at);
                let angle = code.floats("mulf", position, frequency);
                for (name, numbers) in [("cos", &mut cosine), ("sin", &mut sine)] {
                    let mut number = code.math(name, angle);
                    if turn.magnitude != 1.0 {
                        let magnitude = code.float(turn.magnitude);
                        number = code.floats("mulf", number, magnitude);
                    }
                    // Each for both numbers of an interleaved pair.
                    numbers.extend(std::iter::repeat_n(number, RUN / pairs));
                }
            }
            cosines.push(code.elements(&cosine));
            sines.push(code.elements(&sine));
        }
        Some(Self {
            turn,
            cosines,
            sines,
        })
    }

    /// The head whose stripes are `numbers`, turned.
    fn turn(&self, code: &mut Code, mut numbers: Vec<Value>) -> Vec<Value> {
        let ty = "vector<4xf32>";
        for (index, (&cosine, &sine)) in self.cosines.iter().zip(&self.sines).enumerate() {
            match self.turn.pairing {
                Pairing::Half => {
                    let other = index + self.cosines.len();
                    let (a, b) = (numbers[index], numbers[other]);
                    let [ac, bs, bc, r#as] = [(a, cosine), (b, sine), (b, cosine), (a, sine)]
                        .map(|(number, factor)| code.arith("mulf", number, factor, ty));
                    numbers[index] = code.arith("subf", ac, bs, ty);
                    numbers[other] = code.arith("addf", bc, r#as, ty);
                }
                Pairing::Interleaved => {
                    let parts: [Value; RUN] =
                        std::array::from_fn(|part| code.extract(numbers[index], part, RUN));
                    let [a, b, c, d] = parts;
                    let [minus_b, minus_d] =
                        [b, d].map(|number| code.value(format_args!("arith.negf {number} : f32")));
                    let crossed = code.elements(&[minus_b, a, minus_d, c]);
                    let own = code.arith("mulf", numbers[index], cosine, ty);
                    let crossed = code.arith("mulf", crossed, sine, ty);
                    numbers[index] = code.arith("addf", own, crossed, ty);
                }
            }
        }
        numbers
    }
}

/// A head of `width` numbers whose stripes are `numbers`, normed: a team has all of it.
fn normed(
    code: &mut Code,
    norm: &Norm,
    numbers: &[Value],
    part: Value,
    width: usize,
) -> Vec<Value> {
    let mut squares = code.value("arith.constant dense<0.0> : vector<4xf32>");
    for &number in numbers {
        squares = code.fma(number, number, squares, "vector<4xf32>");
    }
    let squares = code.sum(squares, RUN);
    let squares = code.across("addf", squares, 1, TEAM);
    let root = norm.root(code, squares, width);
    let root = code.broadcast(root, RUN);
    numbers
        .iter()
        .enumerate()
        .map(|(stripe, &number)| {
            let number = code.arith("divf", number, root, "vector<4xf32>");
            let offset = code.index(stripe * STRIPE);
            let at = code.add(part, offset);
            norm.scaled(code, number, at, RUN)
        })
        .collect()
}

/// What is gathered, with a position added whose key and value are given, where it is valid.
fn attend(
    code: &mut Code,
    shape: &Shape,
    q: &[Value],
    [key, value]: [&[Value]; 2],
    valid: Value,
    before: &Gathered,
) -> Gathered {
    let mut products = None;
    for (&q, &key) in q.iter().zip(key) {
        products = Some(match products {
            None => code.arith("mulf", q, key, "vector<4xf32>"),
            Some(sum) => code.fma(q, key, sum, "vector<4xf32>"),
        });
    }
    let score = match products {
        Some(products) => code.sum(products, RUN),
        None => code.float(0.0),
    };
    let mut score = code.across("addf", score, 1, TEAM);
    if let Some(cap) = shape.softcap {
        let cap = code.float(cap);
        let share = code.floats("divf", score, cap);
        let bent = code.math("tanh", share);
        score = code.floats("mulf", bent, cap);
    }
    let nothing = code.float(NOTHING);
    let score = code.select(valid, score, nothing, "f32");
    let largest = code.floats("maximumf", before.largest, score);
    let shrunk = code.floats("subf", before.largest, largest);
    let shrunk = code.math("exp", shrunk);
    let share = code.floats("subf", score, largest);
    let share = code.math("exp", share);
    let none = code.float(0.0);
    let share = code.select(valid, share, none, "f32");
    let sum = code.fma(before.sum, shrunk, share, "f32");
    let [shrunk, share] = [shrunk, share].map(|number| code.broadcast(number, RUN));
    let mix = before
        .mix
        .iter()
        .zip(value)
        .map(|(&mix, &value)| {
            let mix = code.arith("mulf", mix, shrunk, "vector<4xf32>");
            code.fma(share, value, mix, "vector<4xf32>")
        })
        .collect();
    Gathered { largest, sum, mix }
}

/// What the teams of [`LANES`] threads have gathered together.
fn over_teams(code: &mut Code, own: &Gathered) -> Gathered {
    let largest = code.across("maximumf", own.largest, TEAM, LANES);
    let shrunk = code.floats("subf", own.largest, largest);
    let shrunk = code.math("exp", shrunk);
    let sum = code.floats("mulf", own.sum, shrunk);
    let sum = code.across("addf", sum, TEAM, LANES);
    let mix = own
        .mix
        .iter()
        .map(|&mix| {
            let parts: Vec<Value> = (0..RUN)
                .map(|part| {
                    let number = code.extract(mix, part, RUN);
                    let number = code.floats("mulf", number, shrunk);
                    code.across("addf", number, TEAM, LANES)
                })
                .collect();
            code.elements(&parts)
        })
        .collect();
    Gathered { largest, sum, mix }
}

/// Where the result goes, and who writes it.
struct Output {
    squads: usize,
    thread: Value,
    lane: Value,
    squad: Value,
    head: Value,
    row: Value,
    part: Value,
}

/// Puts together what the squads gathered, and writes it.
fn combine(code: &mut Code, shape: &Shape, buffers: &Buffers, own: &Gathered, output: &Output) {
    let Output { squads, squad, .. } = *output;
    let mixes = code.shared(squads * shape.width);
    let (scores, sums) = (code.shared(squads), code.shared(squads));
    let team = code.index(TEAM);
    let first_team = code.compare("ult", output.lane, team);
    let base = code.multiply(squad, shape.width);
    let base = code.add(base, output.part);
    code.when(first_team, |code| {
        for (stripe, &mix) in own.mix.iter().enumerate() {
            for part in 0..RUN {
                let number = code.extract(mix, part, RUN);
                let offset = code.index(stripe * STRIPE + part);
                let at = code.add(base, offset);
                code.store(number, &mixes, at);
            }
        }
        code.store(own.largest, &scores, squad);
        code.store(own.sum, &sums, squad);
    });
    code.barrier();
    let width = code.index(shape.width);
    let inside = code.compare("ult", output.thread, width);
    code.when(inside, |code| {
        let mut largest = code.float(NOTHING);
        let sink = buffers
            .sinks
            .as_ref()
            .map(|sinks| code.load_float(sinks, output.head));
        if let Some(sink) = sink {
            largest = sink;
        }
        let each: Vec<(Value, Value)> = (0..squads)
            .map(|number| {
                let at = code.index(number);
                (at, code.load(&scores, at))
            })
            .collect();
        for &(_, score) in &each {
            largest = code.floats("maximumf", largest, score);
        }
        let (mut sum, mut mix) = (code.float(0.0), code.float(0.0));
        if let Some(sink) = sink {
            let share = code.floats("subf", sink, largest);
            sum = code.math("exp", share);
        }
        for &(at, score) in &each {
            let share = code.floats("subf", score, largest);
            let share = code.math("exp", share);
            let part = code.load(&sums, at);
            sum = code.fma(part, share, sum, "f32");
            let at = code.multiply(at, shape.width);
            let at = code.add(at, output.thread);
            let part = code.load(&mixes, at);
            mix = code.fma(part, share, mix, "f32");
        }
        let result = code.floats("divf", mix, sum);
        let at = code.add(output.row, output.thread);
        code.store(result, &buffers.out, at);
    });
}
