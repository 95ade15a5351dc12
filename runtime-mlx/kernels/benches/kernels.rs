//! Times the kernels on the shapes of a small language model (30 layers, width 576, feed-forward
//! 1536, 9 heads and 3 of the cache, 4-bit weights and an 8-bit head of 49152 rows), whose weights
//! exceed the caches, and prints them beside the measured read bandwidth.
//!
//! `cargo bench -p mlxcel-kernels [-- linear | attention | rows | pool]`; `MLXCEL_THREADS` and
//! `MLXCEL_KERNELS` choose threads and form.

use mlxcel_ir::{Activation, DType, Mask, WeightData, WeightDecl, WeightFormat};
use mlxcel_kernels::{
    Attention, Linear, Matrix, Pool, Sequence, attention, gated_linear, linear, linear_group,
    narrow, rms_norm,
};
use std::hint::black_box;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

/// One group of timings.
type Part = fn(&Pool) -> Result<(), Failure>;

const LAYERS: usize = 30;
const WIDTH: usize = 576;
const WIDE: usize = 1536;
const CACHED: usize = 192;
const VOCABULARY: usize = 49152;
const GROUP: usize = 32;

/// The bytes of one affine matrix.
struct Stored {
    rows: usize,
    columns: usize,
    bits: u8,
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    panels: bool,
}

impl Stored {
    fn new(rows: usize, columns: usize, bits: u8, panels: bool) -> Stored {
        let groups = rows * columns / GROUP;
        let mut state = 12345u32;
        let codes = (0..rows * columns * usize::from(bits) / 8).map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 24) as u8
        });
        Stored {
            rows,
            columns,
            bits,
            codes: codes.collect(),
            // 2^-9 and -2^-6 in binary16.
            scales: [0x00, 0x18].repeat(groups),
            biases: [0x00, 0xa4].repeat(groups),
            panels,
        }
    }

    fn layer(&self) -> Result<Linear<'_>, Failure> {
        let data = WeightData {
            values: &self.codes,
            scales: &self.scales,
            biases: &self.biases,
        };
        let (rows, columns) = (self.rows, self.columns);
        let declaration = WeightDecl {
            name: "weight".into(),
            shape: vec![rows, columns],
            format: match self.panels {
                true => WeightFormat::Panels {
                    zero: None,
                    group: GROUP,
                    scale: DType::F16,
                },
                false => WeightFormat::Affine {
                    bits: self.bits,
                    group: GROUP,
                    scale: DType::F16,
                },
            },
        };
        let matrix = Matrix::new(&declaration, data)?;
        Ok(Linear { matrix, bias: None })
    }
}

struct Model {
    layers: Vec<[Stored; 7]>,
    head: Stored,
}

impl Model {
    /// With 4-bit codes in rows or in panels.
    fn new(panels: bool) -> Model {
        let shapes = [
            (WIDTH, WIDTH),
            (CACHED, WIDTH),
            (CACHED, WIDTH),
            (WIDTH, WIDTH),
            (WIDE, WIDTH),
            (WIDE, WIDTH),
            (WIDTH, WIDE),
        ];
        let layer = |_| shapes.map(|(rows, columns)| Stored::new(rows, columns, 4, panels));
        Model {
            layers: (0..LAYERS).map(layer).collect(),
            head: Stored::new(VOCABULARY, WIDTH, 8, false),
        }
    }

    fn body_bytes(&self) -> usize {
        let stored = self.layers.iter().flatten();
        stored.map(|s| s.codes.len() + 2 * s.scales.len()).sum()
    }

    /// The linear layers of all blocks for `rows` rows.
    fn body(&self, pool: &Pool, rows: usize, space: &mut Space) -> Result<(), Failure> {
        let x = &space.x[..rows * WIDTH];
        let (q, k) = (&mut space.a[..rows * WIDTH], &mut space.b[..rows * CACHED]);
        let v = &mut space.c[..rows * CACHED];
        let wide = &mut space.wide[..rows * WIDE];
        for [wq, wk, wv, wo, gate, up, down] in &self.layers {
            let layers = [wq.layer()?, wk.layer()?, wv.layer()?];
            linear_group(pool, x, &layers, &mut [&mut *q, &mut *k, &mut *v])?;
            linear(pool, x, wo.layer()?, Some(x), q)?;
            gated_linear(pool, x, gate.layer()?, up.layer()?, Activation::Silu, wide)?;
            linear(pool, wide, down.layer()?, Some(x), q)?;
        }
        Ok(())
    }
}

struct Space {
    x: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    wide: Vec<f32>,
    logits: Vec<f32>,
}

/// Seconds that this thread has spent on a processor, where the system tells: with one thread, a
/// figure that other work on the machine disturbs less than the time of the clock.
fn processor_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// Median and least milliseconds of at least `runs` runs. With a pool of one thread both are the
/// mean of the processor time, whose clock is coarse.
fn time(runs: usize, mut body: impl FnMut() -> Result<(), Failure>) -> Result<[f64; 2], Failure> {
    let alone = Pool::global()?.threads() == 1;
    body()?;
    let mut times = Vec::with_capacity(runs);
    let (begin, used) = (Instant::now(), processor_time());
    while times.len() < runs || (begin.elapsed().as_secs_f64() < 1.0 && times.len() < 1 << 20) {
        let start = Instant::now();
        body()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    if let (true, Some((before, after))) = (alone, used.zip(processor_time())) {
        let mean = (after - before) * 1e3 / times.len() as f64;
        return Ok([mean, mean]);
    }
    times.sort_by(f64::total_cmp);
    Ok([times[times.len() / 2], times[0]])
}

/// Bytes per second of summing `bytes` of memory with all threads of the pool.
fn bandwidth(pool: &Pool, bytes: usize) -> Result<f64, Failure> {
    let numbers = vec![1u64; bytes / 8];
    let [_, least] = time(10, || {
        pool.ranges(numbers.len(), 1 << 14, |range| {
            let mut sums = [0u64; 16];
            for line in numbers[range].chunks_exact(16) {
                for (sum, number) in sums.iter_mut().zip(line) {
                    *sum = sum.wrapping_add(*number);
                }
            }
            black_box(sums);
        })?;
        Ok(())
    })?;
    Ok(bytes as f64 / least * 1e3)
}

fn linears(pool: &Pool) -> Result<(), Failure> {
    let model = Model::new(false);
    let panels = Model::new(true);
    let most = 512;
    let mut space = Space {
        x: (0..most * WIDTH)
            .map(|i| (i % 17) as f32 / 8.0 - 1.0)
            .collect(),
        a: vec![0.0; most * WIDTH],
        b: vec![0.0; most * CACHED],
        c: vec![0.0; most * CACHED],
        wide: vec![0.0; most * WIDE],
        logits: vec![0.0; 4 * VOCABULARY],
    };
    let read = bandwidth(pool, 128 << 20)?;
    println!("read bandwidth over 128 MiB: {:.1} GB/s", read / 1e9);
    let head_bytes = model.head.codes.len() + 2 * model.head.scales.len();
    let report = |name: &str, rows: usize, bytes: usize, [median, least]: [f64; 2]| {
        let rate = bytes as f64 / least * 1e3;
        println!(
            "{name} x {rows}: {median:.3} ms median, {least:.3} ms least, {:.1} GB/s, {:.0} % of the read bandwidth",
            rate / 1e9,
            rate / read * 100.0
        );
    };
    for rows in [1, 2, 4] {
        let times = time(30, || model.body(pool, rows, &mut space))?;
        report("blocks", rows, model.body_bytes(), times);
        let times = time(30, || panels.body(pool, rows, &mut space))?;
        report("blocks of panels", rows, model.body_bytes(), times);
        let x = &space.x[..rows * WIDTH];
        let logits = &mut space.logits[..rows * VOCABULARY];
        let head = model.head.layer()?;
        let times = time(30, || Ok(linear(pool, x, head, None, logits)?))?;
        report("head", rows, head_bytes, times);
    }
    for (name, model) in [("one cached matrix", &model), ("one of panels", &panels)] {
        let [layer, ..] = &model.layers[0];
        let bytes = layer.codes.len() + 2 * layer.scales.len();
        let layer = layer.layer()?;
        for rows in [1, 2, 4] {
            let x = &space.x[..rows * WIDTH];
            let out = &mut space.a[..rows * WIDTH];
            let times = time(100, || Ok(linear(pool, x, layer, None, out)?))?;
            report(name, rows, bytes, times);
        }
    }
    let numbers: usize = model
        .layers
        .iter()
        .flatten()
        .map(|s| s.rows * s.columns)
        .sum();
    for rows in [8, 16, 32, 128] {
        let [median, least] = time(5, || model.body(pool, rows, &mut space))?;
        let of_panels = time(5, || panels.body(pool, rows, &mut space))?;
        println!("blocks of panels x {rows}: {:.1} ms least", of_panels[1]);
        println!(
            "blocks x {rows}: {median:.1} ms median, {least:.1} ms least, {:.1} GFLOP/s, {:.0} rows/s",
            2.0 * (numbers * rows) as f64 / least / 1e6,
            rows as f64 / least * 1e3
        );
    }
    Ok(())
}

fn attentions(pool: &Pool) -> Result<(), Failure> {
    let layer = Attention {
        heads: 9,
        kv_heads: 3,
        dim: 64,
        scale: 0.125,
        mask: Mask::Causal,
        window: None,
        chunk: None,
        softcap: None,
        slopes: &[],
        sinks: &[],
    };
    let lengths = [(1, 128), (1, 1024), (1, 8192), (128, 128), (512, 512)];
    let dtypes = [DType::F32, DType::F16, DType::BF16];
    for (dtype, (tokens, length)) in dtypes
        .into_iter()
        .flat_map(|dtype| lengths.map(|sizes| (dtype, sizes)))
    {
        let query = vec![0.5; tokens * WIDTH];
        let mut cache = vec![0; length * CACHED * dtype.size()];
        narrow(dtype, &vec![0.25; length * CACHED], &mut cache)?;
        let mut out = vec![0.0; tokens * WIDTH];
        let sequence = Sequence {
            query: &query,
            start: length - tokens,
            length,
            dtype,
            keys: &cache,
            values: &cache,
            rows: length,
            position_stride: CACHED,
            head_stride: 64,
        };
        let [median, least] = time(20, || {
            Ok(attention(pool, &layer, &[sequence], &mut [&mut out])?)
        })?;
        println!(
            "attention of {tokens} over {length} {dtype}: {median:.3} ms median, {least:.3} ms least"
        );
    }
    Ok(())
}

fn rows(pool: &Pool) -> Result<(), Failure> {
    let x = vec![0.5; WIDTH];
    let mut out = vec![0.0; WIDTH];
    let [median, least] = time(1000, || Ok(rms_norm(pool, &x, &x, 1e-5, &mut out)?))?;
    println!(
        "rms_norm of {WIDTH}: {:.2} us median, {:.2} us least",
        median * 1e3,
        least * 1e3
    );
    Ok(())
}

fn pool_cost(pool: &Pool) -> Result<(), Failure> {
    let [median, least] = time(10_000, || Ok(pool.run(|_, _| ())?))?;
    println!(
        "empty run: {:.2} us median, {:.2} us least",
        median * 1e3,
        least * 1e3
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let pool = Pool::global()?;
    println!("{} threads, form {}", pool.threads(), pool.form());
    let chosen: Vec<_> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let parts: [(&str, Part); 4] = [
        ("pool", pool_cost),
        ("rows", rows),
        ("linear", linears),
        ("attention", attentions),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.iter().any(|c| c == name) {
            part(pool)?;
        }
    }
    Ok(())
}
