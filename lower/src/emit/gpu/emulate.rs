//! Executes the text of a kernel as a GPU would, so that tests need none.
//!
//! All threads of a workgroup go through the text together, each line at once, and those that a branch
//! leaves out wait. It knows the operations that [`super::code::Code`] writes, and no others.

use half::{bf16, f16};
use std::collections::HashMap;

/// A number of one thread, or a vector of numbers.
#[derive(Clone, Debug, PartialEq)]
enum Number {
    Integer(i64),
    Float(f32),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
}

use Number::{Float, Floats, Integer, Integers};

impl Number {
    fn integer(&self) -> i64 {
        match self {
            Integer(number) => *number,
            other => panic!("{other:?} is no integer"),
        }
    }

    fn float(&self) -> f32 {
        match self {
            Float(number) => *number,
            other => panic!("{other:?} is no float"),
        }
    }

    fn floats(&self) -> &[f32] {
        match self {
            Floats(numbers) => numbers,
            other => panic!("{other:?} is no vector of floats"),
        }
    }
}

/// Bytes and the type that a view of them has.
#[derive(Clone, Debug)]
struct View {
    memory: usize,
    element: String,
}

/// A line, and what stands in its braces.
#[derive(Debug)]
struct Line {
    results: Vec<String>,
    words: Vec<String>,
    inner: Vec<Line>,
}

/// Runs `workgroups` of `threads` threads over the bytes of the bindings, whose names are given.
pub(super) fn run(
    text: &str,
    names: &[String],
    bindings: &mut [Vec<u8>],
    [workgroups, threads]: [usize; 2],
) {
    let mut lines = text.lines();
    let program = block(&mut lines);
    for workgroup in 0..workgroups {
        let mut group = Group {
            workgroup,
            threads,
            names,
            memory: bindings.to_vec(),
            views: HashMap::new(),
            values: HashMap::new(),
        };
        group.execute(&program, &vec![true; threads]);
        for (binding, memory) in bindings.iter_mut().zip(group.memory) {
            *binding = memory;
        }
    }
}

fn block<'t>(lines: &mut impl Iterator<Item = &'t str>) -> Vec<Line> {
    let mut block_lines = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line == "}" {
            break;
        }
        let (results, operation) = match line.starts_with('%') {
            true => line.split_once(" = ").unwrap(),
            false => ("", line),
        };
        let words = |text: &str| {
            let separate = |c: char| c.is_whitespace() || ",:[]()<>".contains(c);
            let words = text.split(separate).filter(|word| !word.is_empty());
            words.map(str::to_string).collect::<Vec<_>>()
        };
        let inner = match operation.ends_with('{') {
            true => block(lines),
            false => Vec::new(),
        };
        block_lines.push(Line {
            results: words(results),
            words: words(operation.trim_end_matches('{')),
            inner,
        });
    }
    block_lines
}

struct Group<'n> {
    workgroup: usize,
    threads: usize,
    names: &'n [String],
    memory: Vec<Vec<u8>>,
    views: HashMap<String, View>,
    values: HashMap<String, Vec<Number>>,
}

impl Group<'_> {
    fn get(&self, name: &str, thread: usize) -> &Number {
        &self.values.get(name).unwrap_or_else(|| panic!("{name}"))[thread]
    }

    fn set(&mut self, name: &str, thread: usize, value: Number) {
        let threads = self.threads;
        let values = self.values.entry(name.to_string());
        values.or_insert_with(|| vec![Integer(0); threads])[thread] = value;
    }

    /// Gives the values of a `scf.yield` by thread.
    fn execute(&mut self, lines: &[Line], active: &[bool]) -> Vec<Vec<Number>> {
        for line in lines {
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            match words[0] {
                "scf.yield" => {
                    let names = words[1..].iter().take_while(|word| word.starts_with('%'));
                    return names.map(|name| self.values[*name].clone()).collect();
                }
                "scf.if" => {
                    let inner: Vec<bool> = (0..self.threads)
                        .map(|thread| active[thread] && self.get(words[1], thread).integer() != 0)
                        .collect();
                    if inner.contains(&true) {
                        self.execute(&line.inner, &inner);
                    }
                }
                "scf.for" => self.repeat(line, &words, active),
                "gpu.barrier" => assert!(!active.contains(&false), "a barrier in a branch"),
                "gpu.shuffle" => self.shuffle(line, &words, active),
                "stream.binding.subspan" => {
                    let memory = self.names.iter().position(|name| name == words[1]).unwrap();
                    self.view(line, &words, memory);
                }
                "memref.alloc" => {
                    let size: usize = sizes(&words).0;
                    self.memory.push(vec![0xFF; size * 4]);
                    self.view(line, &words, self.memory.len() - 1);
                }
                _ => {
                    for thread in (0..self.threads).filter(|&thread| active[thread]) {
                        if let Some(value) = self.one(&words, thread) {
                            self.set(&line.results[0], thread, value);
                        }
                    }
                }
            }
        }
        Vec::new()
    }

    fn view(&mut self, line: &Line, words: &[&str], memory: usize) {
        let element = sizes(words).1;
        self.views
            .insert(line.results[0].clone(), View { memory, element });
    }

    fn repeat(&mut self, line: &Line, words: &[&str], active: &[bool]) {
        // scf.for %i = %a to %b step %c iter_args %x = %y ..
        let [counter, start, end, step] = [1, 3, 5, 7].map(|at| words[at]);
        let carried: Vec<&str> = words[8..]
            .iter()
            .copied()
            .filter(|word| word.starts_with('%'))
            .collect();
        for thread in 0..self.threads {
            let first = self.get(start, thread).clone();
            self.set(counter, thread, first);
            for pair in carried.chunks(2) {
                let initial = self.get(pair[1], thread).clone();
                self.set(pair[0], thread, initial);
            }
        }
        loop {
            let inner: Vec<bool> = (0..self.threads)
                .map(|thread| {
                    active[thread]
                        && self.get(counter, thread).integer() < self.get(end, thread).integer()
                })
                .collect();
            if !inner.contains(&true) {
                break;
            }
            let next = self.execute(&line.inner, &inner);
            for thread in (0..self.threads).filter(|&thread| inner[thread]) {
                for (pair, next) in carried.chunks(2).zip(&next) {
                    self.set(pair[0], thread, next[thread].clone());
                }
                let after = self.get(counter, thread).integer() + self.get(step, thread).integer();
                self.set(counter, thread, Integer(after));
            }
        }
        for (result, pair) in line.results.iter().zip(carried.chunks(2)) {
            let values = self.values[pair[0]].clone();
            self.values.insert(result.clone(), values);
        }
    }

    fn shuffle(&mut self, line: &Line, words: &[&str], active: &[bool]) {
        // gpu.shuffle xor %value %offset %width f32
        let values = self.values[words[2]].clone();
        for thread in 0..self.threads {
            let other = thread ^ self.get(words[3], thread).integer() as usize;
            assert_eq!(active[thread], active[other], "a lane that takes no part");
            self.set(&line.results[0], thread, values[other].clone());
        }
    }

    fn load(&self, view: &str, at: usize) -> Number {
        let view = &self.views[view];
        let bytes = &self.memory[view.memory];
        let take = |size: usize| &bytes[at * size..(at + 1) * size];
        match view.element.as_str() {
            "f32" => Float(f32::from_le_bytes(take(4).try_into().unwrap())),
            "bf16" => Float(bf16::from_le_bytes(take(2).try_into().unwrap()).to_f32()),
            "f16" => Float(f16::from_le_bytes(take(2).try_into().unwrap()).to_f32()),
            "i32" => Integer(i32::from_le_bytes(take(4).try_into().unwrap()).into()),
            "i8" => Integer(take(1)[0].into()),
            other => panic!("memory of {other}"),
        }
    }

    fn store(&mut self, view: &str, at: usize, value: Number) {
        let view = &self.views[view];
        let bytes = match (value, view.element.as_str()) {
            (Float(number), "bf16") => bf16::from_f32(number).to_le_bytes().to_vec(),
            (Float(number), "f16") => f16::from_f32(number).to_le_bytes().to_vec(),
            (Float(number), _) => number.to_le_bytes().to_vec(),
            (other, _) => (other.integer() as i32).to_le_bytes().to_vec(),
        };
        let place = at * bytes.len()..(at + 1) * bytes.len();
        self.memory[view.memory][place].copy_from_slice(&bytes);
    }

    /// The result of an operation for one thread, if it has one.
    fn one(&mut self, words: &[&str], thread: usize) -> Option<Number> {
        let operands: Vec<Number> = words[1..]
            .iter()
            .filter_map(|word| Some(self.values.get(*word)?[thread].clone()))
            .collect();
        let at = |name: &str| match self.values[name][thread] {
            Integer(at) => at as usize,
            ref other => panic!("{other:?} as an index"),
        };
        Some(match words[0] {
            "arith.constant" => constant(&words[1..]),
            "gpu.thread_id" => Integer(thread as i64),
            "hal.interface.workgroup.id" => Integer(self.workgroup as i64),
            "memref.load" => self.load(words[1], at(words[2])),
            "memref.store" => {
                let to = at(words[3]);
                self.store(words[2], to, operands[0].clone());
                return None;
            }
            "vector.store" => {
                let first = at(words[3]);
                let numbers = operands[0].floats();
                assert!(first.is_multiple_of(numbers.len()), "a vector at {first}");
                for (place, &number) in numbers.iter().enumerate() {
                    self.store(words[2], first + place, Float(number));
                }
                return None;
            }
            "vector.load" => {
                let first = at(words[2]);
                let count: usize = last_vector(words);
                assert!(first.is_multiple_of(count), "a vector at {first}");
                gathered((first..first + count).map(|at| self.load(words[1], at)))
            }
            "vector.extract" => Float(operands[0].floats()[words[2].parse::<usize>().unwrap()]),
            "vector.reduction" => Float(operands[0].floats().iter().sum()),
            "vector.from_elements" => gathered(operands.into_iter()),
            "vector.broadcast" => {
                gathered(std::iter::repeat_n(operands[0].clone(), last_vector(words)))
            }
            "vector.shuffle" => Floats([operands[0].floats(), operands[1].floats()].concat()),
            "math.fma" => {
                let product = binary("mulf", &operands[0], &operands[1]);
                binary("addf", &product, &operands[2])
            }
            "arith.cmpi" | "arith.cmpf" => {
                let holds = match (words[1], &operands[0], &operands[1]) {
                    ("eq", Integer(a), Integer(b)) => a == b,
                    ("ult", Integer(a), Integer(b)) => a < b,
                    ("uge", Integer(a), Integer(b)) => a >= b,
                    ("ogt", Float(a), Float(b)) => a > b,
                    ("oeq", Float(a), Float(b)) => a == b,
                    other => panic!("{other:?}"),
                };
                Integer(holds.into())
            }
            "arith.select" => operands[if operands[0].integer() != 0 { 1 } else { 2 }].clone(),
            "arith.extf" | "arith.index_cast" => operands[0].clone(),
            "arith.truncf" => {
                let round = match words.last() {
                    Some(ty) if ty.contains("bf16") => |x: &f32| bf16::from_f32(*x).to_f32(),
                    _ => |x: &f32| f16::from_f32(*x).to_f32(),
                };
                Floats(operands[0].floats().iter().map(round).collect())
            }
            "arith.uitofp" | "arith.sitofp" => match &operands[0] {
                Integers(numbers) => Floats(numbers.iter().map(|&number| number as f32).collect()),
                other => Float(other.integer() as f32),
            },
            "arith.fptosi" => Integer(operands[0].float() as i64),
            "arith.negf" => Float(-operands[0].float()),
            "math.exp" => Float(operands[0].float().exp()),
            "math.tanh" => Float(operands[0].float().tanh()),
            "math.sqrt" => Float(operands[0].float().sqrt()),
            "math.cos" => Float(operands[0].float().cos()),
            "math.sin" => Float(operands[0].float().sin()),
            name => match name.strip_prefix("arith.") {
                Some(name) => binary(name, &operands[0], &operands[1]),
                None => panic!("unknown: {words:?}"),
            },
        })
    }
}

fn gathered(numbers: impl Iterator<Item = Number>) -> Number {
    let numbers: Vec<Number> = numbers.collect();
    match numbers.first() {
        Some(Integer(_)) => Integers(numbers.iter().map(Number::integer).collect()),
        _ => Floats(numbers.iter().map(Number::float).collect()),
    }
}

fn binary(name: &str, a: &Number, b: &Number) -> Number {
    let integers = |a: i64, b: i64| match name {
        "addi" => a + b,
        "subi" => a - b,
        "muli" => a * b,
        "divui" => a / b,
        "remui" => a % b,
        "minui" => a.min(b),
        "maxui" => a.max(b),
        "andi" => a & b,
        "shrui" => i64::from(a as u32 >> b),
        _ => panic!("unknown: {name}"),
    };
    let floats = |a: f32, b: f32| match name {
        "addf" => a + b,
        "subf" => a - b,
        "mulf" => a * b,
        "divf" => a / b,
        "maximumf" => a.max(b),
        "minimumf" => a.min(b),
        _ => panic!("unknown: {name}"),
    };
    match (a, b) {
        (Integer(a), Integer(b)) => Integer(integers(*a, *b)),
        (Float(a), Float(b)) => Float(floats(*a, *b)),
        (Integers(a), Integers(b)) => {
            Integers(a.iter().zip(b).map(|(&a, &b)| integers(a, b)).collect())
        }
        (Floats(a), Floats(b)) => Floats(a.iter().zip(b).map(|(&a, &b)| floats(a, b)).collect()),
        other => panic!("{name} of {other:?}"),
    }
}

/// `5 index`, `1.0e0 f32`, `dense 0 4 .. vector 8xi32`.
fn constant(words: &[&str]) -> Number {
    let number = |word: &str| -> f32 {
        match word.strip_prefix("0x") {
            Some(bits) => f32::from_bits(u32::from_str_radix(bits, 16).unwrap()),
            None => word.parse().unwrap(),
        }
    };
    match words {
        ["dense", numbers @ .., "vector", ty] => {
            let (count, element) = ty.split_once('x').unwrap();
            let numbers = numbers.iter().cycle().take(count.parse().unwrap());
            match element {
                "f32" => Floats(numbers.map(|word| number(word)).collect()),
                _ => Integers(numbers.map(|word| word.parse().unwrap()).collect()),
            }
        }
        [word, "f32"] => Float(number(word)),
        [word, ..] => Integer(word.parse().unwrap()),
        [] => panic!("a constant without a value"),
    }
}

/// The size and the element of the type `memref<8xf32, ..>`.
fn sizes(words: &[&str]) -> (usize, String) {
    let at = words.iter().position(|word| *word == "memref").unwrap();
    let (size, element) = words[at + 1].split_once('x').unwrap();
    (size.parse().unwrap(), element.to_string())
}

/// The size of the last vector type of a line.
fn last_vector(words: &[&str]) -> usize {
    let ty = words.last().unwrap();
    ty.split_once('x').unwrap().0.parse().unwrap()
}
