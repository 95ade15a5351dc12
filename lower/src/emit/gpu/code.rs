//! The text of a kernel's body while it is written.

use crate::emit::element::Element;
use std::fmt::{self, Display, Write};

/// A value of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value(usize);

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%v{}", self.0)
    }
}

/// Memory that a body reads or writes, of one dimension.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    value: Value,
    ty: String,
    element: Element,
}

/// Operations in the order of execution, each on a line.
#[derive(Default)]
pub(super) struct Code {
    text: String,
    values: usize,
}

/// The largest number of threads whose values an operation can exchange: a subgroup on some GPUs, half
/// of one on others.
pub(super) const LANES: usize = 32;

impl Code {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A value that something outside of the body defines.
    pub(super) fn fresh(&mut self) -> Value {
        self.values += 1;
        Value(self.values - 1)
    }

    pub(super) fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    /// The result of `operation`.
    pub(super) fn value(&mut self, operation: impl Display) -> Value {
        let value = self.fresh();
        self.line(format_args!("{value} = {operation}"));
        value
    }

    pub(super) fn index(&mut self, number: usize) -> Value {
        self.value(format_args!("arith.constant {number} : index"))
    }

    pub(super) fn integer(&mut self, number: i64) -> Value {
        self.value(format_args!("arith.constant {number} : i32"))
    }

    pub(super) fn float(&mut self, number: f64) -> Value {
        // All digits that an f32 has, and an exponent, as MLIR wants a float to look.
        self.value(format_args!("arith.constant {:.9e} : f32", number as f32))
    }

    /// An operation of two values of the type `ty`, `name` without its dialect.
    pub(super) fn arith(&mut self, name: &str, a: Value, b: Value, ty: &str) -> Value {
        self.value(format_args!("arith.{name} {a}, {b} : {ty}"))
    }

    pub(super) fn add(&mut self, a: Value, b: Value) -> Value {
        self.arith("addi", a, b, "index")
    }

    pub(super) fn multiply(&mut self, a: Value, factor: usize) -> Value {
        let factor = self.index(factor);
        self.arith("muli", a, factor, "index")
    }

    pub(super) fn divide(&mut self, a: Value, divisor: usize) -> Value {
        let divisor = self.index(divisor);
        self.arith("divui", a, divisor, "index")
    }

    pub(super) fn remainder(&mut self, a: Value, divisor: usize) -> Value {
        let divisor = self.index(divisor);
        self.arith("remui", a, divisor, "index")
    }

    /// An operation of two `f32`.
    pub(super) fn floats(&mut self, name: &str, a: Value, b: Value) -> Value {
        self.arith(name, a, b, "f32")
    }

    /// `a * b + c` of the type `ty`.
    pub(super) fn fma(&mut self, a: Value, b: Value, c: Value, ty: &str) -> Value {
        self.value(format_args!("math.fma {a}, {b}, {c} : {ty}"))
    }

    /// A function of an `f32`, `name` without its dialect.
    pub(super) fn math(&mut self, name: &str, a: Value) -> Value {
        self.value(format_args!("math.{name} {a} : f32"))
    }

    pub(super) fn compare(&mut self, how: &str, a: Value, b: Value) -> Value {
        self.value(format_args!("arith.cmpi {how}, {a}, {b} : index"))
    }

    pub(super) fn select(&mut self, condition: Value, a: Value, b: Value, ty: &str) -> Value {
        self.value(format_args!("arith.select {condition}, {a}, {b} : {ty}"))
    }

    pub(super) fn thread(&mut self) -> Value {
        self.value("gpu.thread_id x")
    }

    pub(super) fn workgroup(&mut self) -> Value {
        self.value("hal.interface.workgroup.id[0] : index")
    }

    /// The memory behind a binding, as `size` elements.
    pub(super) fn binding(&mut self, binding: Value, element: Element, size: usize) -> Memory {
        let zero = self.index(0);
        // With a layout that says less, the compiler takes the offset of a binding for 0.
        let ty = format!("memref<{size}x{}, strided<[1], offset: ?>>", element.name());
        let value = self.value(format_args!(
            "stream.binding.subspan {binding}[{zero}] : !stream.binding -> {ty}"
        ));
        Memory { value, ty, element }
    }

    /// Memory that the threads of a workgroup share, of `size` `f32`.
    pub(super) fn shared(&mut self, size: usize) -> Memory {
        let ty = format!("memref<{size}xf32, #gpu.address_space<workgroup>>");
        let value = self.value(format_args!("memref.alloc() : {ty}"));
        Memory {
            value,
            ty,
            element: Element::F32,
        }
    }

    /// Threads of a workgroup wait here for each other.
    pub(super) fn barrier(&mut self) {
        self.line("gpu.barrier");
    }

    pub(super) fn load(&mut self, memory: &Memory, at: Value) -> Value {
        let Memory { value, ty, .. } = memory;
        self.value(format_args!("memref.load {value}[{at}] : {ty}"))
    }

    pub(super) fn store(&mut self, what: Value, memory: &Memory, at: Value) {
        let Memory { value, ty, .. } = memory;
        self.line(format_args!("memref.store {what}, {value}[{at}] : {ty}"));
    }

    /// `count` elements from `at` on, which is a multiple of `count`.
    pub(super) fn load_vector(&mut self, memory: &Memory, at: Value, count: usize) -> Value {
        let Memory { value, ty, element } = memory;
        let name = element.name();
        self.value(format_args!(
            "vector.load {value}[{at}] : {ty}, vector<{count}x{name}>"
        ))
    }

    /// Stores a vector of `count` elements from `at` on, which is a multiple of `count`.
    pub(super) fn store_vector(&mut self, what: Value, memory: &Memory, at: Value, count: usize) {
        let Memory { value, ty, element } = memory;
        let name = element.name();
        self.line(format_args!(
            "vector.store {what}, {value}[{at}] : {ty}, vector<{count}x{name}>"
        ));
    }

    /// The vector of some `f32`.
    pub(super) fn elements(&mut self, numbers: &[Value]) -> Value {
        let (count, numbers) = (numbers.len(), list(numbers));
        self.value(format_args!(
            "vector.from_elements {numbers} : vector<{count}xf32>"
        ))
    }

    /// A vector that repeats an `f32`.
    pub(super) fn broadcast(&mut self, number: Value, count: usize) -> Value {
        self.value(format_args!(
            "vector.broadcast {number} : f32 to vector<{count}xf32>"
        ))
    }

    /// An element as `f32`.
    pub(super) fn load_float(&mut self, memory: &Memory, at: Value) -> Value {
        let value = self.load(memory, at);
        match memory.element {
            Element::F32 => value,
            element => self.value(format_args!(
                "arith.extf {value} : {} to f32",
                element.name()
            )),
        }
    }

    /// `count` elements as a vector of `f32`, as [`Code::load_vector`].
    pub(super) fn load_floats(&mut self, memory: &Memory, at: Value, count: usize) -> Value {
        let value = self.load_vector(memory, at, count);
        self.widen(value, memory, count)
    }

    /// A vector of `count` elements of `memory` as `f32`.
    pub(super) fn widen(&mut self, value: Value, memory: &Memory, count: usize) -> Value {
        let name = memory.element.name();
        match memory.element {
            Element::F32 => value,
            _ => self.value(format_args!(
                "arith.extf {value} : vector<{count}x{name}> to vector<{count}xf32>"
            )),
        }
    }

    /// A vector of `count` `f32` as elements of `memory`, rounded to the nearest.
    pub(super) fn narrow(&mut self, value: Value, memory: &Memory, count: usize) -> Value {
        let name = memory.element.name();
        match memory.element {
            Element::F32 => value,
            _ => self.value(format_args!(
                "arith.truncf {value} : vector<{count}xf32> to vector<{count}x{name}>"
            )),
        }
    }

    /// Element `at` of a vector of `count` `f32`.
    pub(super) fn extract(&mut self, vector: Value, at: usize, count: usize) -> Value {
        self.value(format_args!(
            "vector.extract {vector}[{at}] : f32 from vector<{count}xf32>"
        ))
    }

    /// The sum of a vector of `count` `f32`.
    pub(super) fn sum(&mut self, vector: Value, count: usize) -> Value {
        self.value(format_args!(
            "vector.reduction <add>, {vector} : vector<{count}xf32> into f32"
        ))
    }

    /// Combines the `f32` of lanes whose numbers differ in the bits between `from` and `to`, powers of
    /// two: all of them then have the result.
    pub(super) fn across(&mut self, name: &str, mut value: Value, from: usize, to: usize) -> Value {
        let width = self.integer(LANES as i64);
        let mut distance = from;
        while distance < to {
            let offset = self.integer(distance as i64);
            let (other, valid) = (self.fresh(), self.fresh());
            self.line(format_args!(
                "{other}, {valid} = gpu.shuffle xor {value}, {offset}, {width} : f32"
            ));
            value = self.floats(name, value, other);
            distance *= 2;
        }
        value
    }

    /// `body` for each number from `start` below `end` in steps of `step`. It takes the number and
    /// values of the types given, at first `initial`, and gives their next ones; the last are the result.
    pub(super) fn repeat(
        &mut self,
        [start, end, step]: [Value; 3],
        initial: &[(Value, &str)],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let counter = self.fresh();
        let carried: Vec<Value> = initial.iter().map(|_| self.fresh()).collect();
        let results: Vec<Value> = initial.iter().map(|_| self.fresh()).collect();
        let types = list(initial.iter().map(|(_, ty)| ty));
        let pairs = carried.iter().zip(initial);
        let pairs = list(pairs.map(|(carried, (initial, _))| format!("{carried} = {initial}")));
        let range = format!("scf.for {counter} = {start} to {end} step {step}");
        match initial.is_empty() {
            true => self.line(format_args!("{range} {{")),
            false => self.line(format_args!(
                "{} = {range} iter_args({pairs}) -> ({types}) {{",
                list(&results)
            )),
        }
        let next = body(self, counter, &carried);
        if !next.is_empty() {
            self.line(format_args!("scf.yield {} : {types}", list(&next)));
        }
        self.line("}");
        results
    }

    /// `body` where the condition holds.
    pub(super) fn when(&mut self, condition: Value, body: impl FnOnce(&mut Self)) {
        self.line(format_args!("scf.if {condition} {{"));
        body(self);
        self.line("}");
    }
}

/// Parts with commas between them.
pub(super) fn list(parts: impl IntoIterator<Item = impl Display>) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.to_string()).collect();
    parts.join(", ")
}
