//! Attention of one new token of each row to its cache.
//!
//! A workgroup computes one head of one row. Eight lanes read a cached position together, so that
//! [`LANES`] read four; each such team keeps the largest score it met, the sum of its shares and its mix
//! of values, which are put together at the end.

use super::code::{Code, LANES, Memory, Value};
use crate::emit::element::Element;

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
}

/// The buffers, each as in `attention(q, k, v, start) [sinks]` and its cache.
pub(super) struct Buffers {
    pub(super) q: Memory,
    pub(super) k: Memory,
    pub(super) v: Memory,
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
    let scale = code.float(shape.scale);
    let scale = code.value(format_args!(
        "vector.broadcast {scale} : f32 to vector<4xf32>"
    ));
    let q: Vec<Value> = (0..stripes)
        .map(|stripe| {
            let q = load_stripe(code, &buffers.q, q_row, stripe);
            code.arith("mulf", q, scale, "vector<4xf32>")
        })
        .collect();

    let zero = code.index(0);
    let new_row = code.multiply(row, shape.kv_heads);
    let new_row = code.add(new_row, kv_head);
    let new_row = code.multiply(new_row, shape.width);
    // The first head of a group appends to the cache; nobody reads there in this step.
    let of_group = code.remainder(head, group);
    let appends = code.compare("eq", of_group, zero);
    let width = code.index(shape.width);
    let inside = code.compare("ult", thread, width);
    let appends = code.arith("andi", appends, inside, "i1");
    let stride = shape.kv_heads * shape.width;
    let cache_row = code.multiply(row, shape.capacity * stride);
    let head_offset = code.multiply(kv_head, shape.width);
    let cache_row = code.add(cache_row, head_offset);
    code.when(appends, |code| {
        let from = code.add(new_row, thread);
        let offset = code.multiply(start, stride);
        let to = code.add(cache_row, offset);
        let to = code.add(to, thread);
        for (new, cache) in [(&buffers.k, &buffers.keys), (&buffers.v, &buffers.values)] {
            let value = code.load(new, from);
            code.store(value, cache, to);
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
        let offset = code.multiply(position, stride);
        let at = code.add(cache_row, offset);
        let at = code.add(at, part);
        let gathered = Gathered::from(gathered);
        let caches = [&buffers.keys, &buffers.values];
        attend(code, shape, &q, caches, at, valid, &gathered).values()
    });
    let squad_first = code.compare("eq", squad, zero);
    let team_first = code.compare("eq", team, zero);
    let valid = code.arith("andi", squad_first, team_first, "i1");
    let at = code.add(new_row, part);
    let new = [&buffers.k, &buffers.v];
    let gathered = attend(
        code,
        shape,
        &q,
        new,
        at,
        valid,
        &Gathered::from(&gathered),
    );
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
    code.load_vector(memory, at, RUN)
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

/// What is gathered, with the position added whose key and value begin at `at`, where it is valid.
fn attend(
    code: &mut Code,
    shape: &Shape,
    q: &[Value],
    [keys, values]: [&Memory; 2],
    at: Value,
    valid: Value,
    before: &Gathered,
) -> Gathered {
    let mut products = None;
    for (stripe, &q) in q.iter().enumerate() {
        let key = load_stripe(code, keys, at, stripe);
        products = Some(match products {
            None => code.arith("mulf", q, key, "vector<4xf32>"),
            Some(sum) => code.fma(q, key, sum, "vector<4xf32>"),
        });
    }
    let values: Vec<Value> = (0..q.len())
        .map(|stripe| load_stripe(code, values, at, stripe))
        .collect();
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
    let [shrunk, share] = [shrunk, share].map(|number| {
        code.value(format_args!(
            "vector.broadcast {number} : f32 to vector<4xf32>"
        ))
    });
    let mix = before
        .mix
        .iter()
        .zip(values)
        .map(|(&mix, value)| {
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
            let parts = super::code::list(parts);
            code.value(format_args!("vector.from_elements {parts} : vector<4xf32>"))
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

/// The element type of all buffers but `start` and the sinks.
pub(super) const ELEMENT: Element = Element::F32;
