//! Linear recurrences over time, with or without a delta rule, over a memory of each head.

use crate::activation::Output;
use crate::convolution::seen;
use crate::simd::{self, Kernel, Simd};
use crate::{Error, Pool, error};

/// Numbers of memory times tokens in one claim of a thread.
const GRAIN: usize = 1 << 15;
/// Columns of a memory that one task carries through all tokens.
const COLUMNS: usize = 64;

/// The sizes of a recurrence, as [`mlxcel_ir::Op::Recurrence`] and
/// [`mlxcel_ir::Op::DeltaRecurrence`] define it.
#[derive(Clone, Debug)]
pub struct Recurrence {
    /// Heads of the value.
    pub heads: usize,
    /// Numbers of a key.
    pub keys: usize,
    /// Numbers of a value.
    pub width: usize,
    /// Numbers of a head's decay: 1 or `keys`.
    pub decay: usize,
    /// Groups that query and key, and for a delta rule erase and write, have their heads in.
    pub groups: Vec<usize>,
}

impl Recurrence {
    fn check(&self) -> Result<(), Error> {
        let fits = |&groups: &usize| groups > 0 && self.heads.is_multiple_of(groups);
        error::parameter(
            matches!(self.groups.len(), 2 | 4) && self.groups.iter().all(fits),
            "the groups of a recurrence",
            format!("{:?}", self.groups),
            "2 or 4 divisors of the number of heads",
        )?;
        error::parameter(
            self.decay == 1 || self.decay == self.keys,
            "the numbers of a decay",
            self.decay,
            "1 or those of a key",
        )?;
        let positive = self.heads > 0 && self.keys > 0 && self.width > 0;
        error::parameter(positive, "a size of a recurrence", 0, "at least 1")
    }

    /// Groups and numbers of each operand, in their order.
    fn shapes(&self) -> Vec<[usize; 2]> {
        let mut shapes = vec![
            [self.groups[0], self.keys],
            [self.groups[1], self.keys],
            [self.heads, self.width],
            [self.heads, self.decay],
        ];
        shapes.extend(self.groups[2..].iter().map(|&groups| [groups, self.keys]));
        shapes
    }
}

/// `out[B, T, heads, width]` of the first `lengths[b]` tokens, zero after them. `vectors` are query,
/// key, value and decay, and for a delta rule erase and write. Each memory is `[heads, keys, width]`.
///
/// # Errors
/// [`Error::Length`] or [`Error::Parameter`] if the slices do not fit; memories are then unchanged.
pub fn recurrence(
    pool: &Pool,
    rule: &Recurrence,
    vectors: &[&[f32]],
    lengths: &[i32],
    memories: &mut [&mut [f32]],
    out: &mut [f32],
) -> Result<(), Error> {
    rule.check()?;
    let Recurrence {
        heads, keys, width, ..
    } = *rule;
    let rows = memories.len();
    let tokens = out.len() / (rows * heads * width).max(1);
    error::length("the output", out.len(), rows * tokens * heads * width)?;
    let shapes = rule.shapes();
    error::length("the operands", vectors.len(), shapes.len())?;
    for (vector, [groups, size]) in vectors.iter().zip(&shapes) {
        error::length("an operand", vector.len(), rows * tokens * groups * size)?;
    }
    for memory in memories.iter() {
        error::length("a memory", memory.len(), heads * keys * width)?;
    }
    let seen = seen(lengths, rows, tokens)?;
    let memories: Vec<_> = memories
        .iter_mut()
        .map(|m| Output(m.as_mut_ptr()))
        .collect();
    let to = Output(out.as_mut_ptr());
    let blocks = width.div_ceil(COLUMNS);
    let work = tokens * keys * width.min(COLUMNS);
    let grain = GRAIN.div_ceil(work.max(1));
    pool.ranges(rows * heads * blocks, grain, |range| {
        for i in range {
            let (row, head, first) = (i / blocks / heads, i / blocks % heads, i % blocks * COLUMNS);
            let mut parts = [Part::default(); 6];
            for ((part, vector), [groups, size]) in parts.iter_mut().zip(vectors).zip(&shapes) {
                let from = (row * tokens * groups + head * groups / heads) * size;
                *part = Part {
                    from: vector[from.min(vector.len())..].as_ptr(),
                    stride: groups * size,
                };
            }
            let kernel = Head {
                rule,
                parts,
                seen: seen[row],
                tokens,
                columns: (first, width.min(first + COLUMNS)),
                memory: memories[row].at(head * keys * width),
                to: to.at((row * tokens * heads + head) * width),
            };
            // SAFETY: the form is the pool's; the slices have the sizes of the rule; no other task
            // has these columns of this head.
            unsafe { simd::run(pool.form(), kernel) }
        }
    })
}

/// One head's part of an operand.
#[derive(Clone, Copy)]
struct Part {
    from: *const f32,
    /// Numbers from one token to the next.
    stride: usize,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            from: std::ptr::null(),
            stride: 0,
        }
    }
}

/// Columns of one head's memory over all tokens.
struct Head<'a> {
    rule: &'a Recurrence,
    parts: [Part; 6],
    seen: usize,
    tokens: usize,
    columns: (usize, usize),
    memory: *mut f32,
    to: *mut f32,
}

/// The vectors of one token.
#[derive(Clone, Copy)]
struct Token {
    query: *const f32,
    key: *const f32,
    value: *const f32,
    decay: *const f32,
    /// Erase and write of a delta rule.
    delta: Option<(*const f32, *const f32)>,
    /// Where the result goes.
    to: *mut f32,
}

impl Kernel for Head<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.rule.width;
        let (first, end) = self.columns;
        // SAFETY: tokens and columns are inside of what the caller promised.
        unsafe {
            for t in 0..self.seen {
                let token = self.token(t);
                if width == 1 {
                    self.one::<S>(token);
                    continue;
                }
                let mut c = first;
                while c + 4 * S::LANES <= end {
                    self.columns::<S, 4>(token, c);
                    c += 4 * S::LANES;
                }
                while c + S::LANES <= end {
                    self.columns::<S, 1>(token, c);
                    c += S::LANES;
                }
                while c < end {
                    self.column(token, c);
                    c += 1;
                }
            }
            for t in self.seen..self.tokens {
                let to = self.to.add(t * self.rule.heads * width + first);
                std::ptr::write_bytes(to, 0, end - first);
            }
        }
    }
}

impl Head<'_> {
    #[inline(always)]
    unsafe fn part(&self, which: usize, t: usize) -> *const f32 {
        let part = self.parts[which];
        // SAFETY: the operand has token `t`.
        unsafe { part.from.add(t * part.stride) }
    }

    #[inline(always)]
    unsafe fn token(&self, t: usize) -> Token {
        // SAFETY: the operands and the output have token `t`.
        unsafe {
            Token {
                query: self.part(0, t),
                key: self.part(1, t),
                value: self.part(2, t),
                decay: self.part(3, t),
                delta: match self.rule.groups.len() {
                    4 => Some((self.part(4, t), self.part(5, t))),
                    _ => None,
                },
                to: self.to.add(t * self.rule.heads * self.rule.width),
            }
        }
    }

    /// The decay of key `k`.
    #[inline(always)]
    unsafe fn decay(&self, token: Token, k: usize) -> f32 {
        // SAFETY: there are as many decays as keys, or one.
        unsafe { *token.decay.add(if self.rule.decay == 1 { 0 } else { k }) }
    }

    /// `U` vectors of columns from column `c` on.
    #[inline(always)]
    unsafe fn columns<S: Simd, const U: usize>(&self, token: Token, c: usize) {
        let (keys, width) = (self.rule.keys, self.rule.width);
        // SAFETY: the memory has `keys` lines of `width` numbers; the columns are below the width.
        unsafe {
            let memory = self.memory.add(c);
            let mut erased = [S::splat(0.0); U];
            if let Some((erase, _)) = token.delta {
                for k in 0..keys {
                    let factor = S::splat(*erase.add(k) * self.decay(token, k));
                    for u in 0..U {
                        let m = S::load(memory.add(k * width + u * S::LANES));
                        erased[u] = S::fma(factor, m, erased[u]);
                    }
                }
            }
            let mut value = [S::splat(0.0); U];
            let mut result = [S::splat(0.0); U];
            for u in 0..U {
                value[u] = S::load(token.value.add(c + u * S::LANES));
            }
            for k in 0..keys {
                let decay = S::splat(self.decay(token, k));
                let key = S::splat(*token.key.add(k));
                let query = S::splat(*token.query.add(k));
                for u in 0..U {
                    let at = memory.add(k * width + u * S::LANES);
                    let mut m = S::mul(S::load(at), decay);
                    if let Some((_, write)) = token.delta {
                        m = S::sub(m, S::mul(S::splat(*write.add(k)), erased[u]));
                    }
                    m = S::fma(key, value[u], m);
                    S::store(at, m);
                    result[u] = S::fma(query, m, result[u]);
                }
            }
            for u in 0..U {
                S::store(token.to.add(c + u * S::LANES), result[u]);
            }
        }
    }

    /// Column `c`.
    #[inline(always)]
    unsafe fn column(&self, token: Token, c: usize) {
        let (keys, width) = (self.rule.keys, self.rule.width);
        // SAFETY: as for `columns`.
        unsafe {
            let memory = self.memory.add(c);
            let mut erased = 0.0;
            if let Some((erase, _)) = token.delta {
                for k in 0..keys {
                    erased += *erase.add(k) * self.decay(token, k) * *memory.add(k * width);
                }
            }
            let mut result = 0.0;
            for k in 0..keys {
                let at = memory.add(k * width);
                let mut m = *at * self.decay(token, k);
                if let Some((_, write)) = token.delta {
                    m -= *write.add(k) * erased;
                }
                m += *token.key.add(k) * *token.value.add(c);
                *at = m;
                result += *token.query.add(k) * m;
            }
            *token.to.add(c) = result;
        }
    }

    /// The only column of values of one number: vectors run over the keys.
    #[inline(always)]
    unsafe fn one<S: Simd>(&self, token: Token) {
        let keys = self.rule.keys;
        // A delta rule, rest keys and few keys take the plain way.
        if token.delta.is_some() || !keys.is_multiple_of(S::LANES) {
            // SAFETY: passed on.
            return unsafe { self.column(token, 0) };
        }
        // SAFETY: the vectors have `keys` numbers, the decay that many or one.
        unsafe {
            let value = S::splat(*token.value);
            let mut decay = S::splat(*token.decay);
            let mut result = S::splat(0.0);
            let mut k = 0;
            while k < keys {
                if self.rule.decay != 1 {
                    decay = S::load(token.decay.add(k));
                }
                let at = self.memory.add(k);
                let m = S::mul(S::load(at), decay);
                let m = S::fma(S::load(token.key.add(k)), value, m);
                S::store(at, m);
                result = S::fma(S::load(token.query.add(k)), m, result);
                k += S::LANES;
            }
            *token.to = S::sum(result);
        }
    }
}
