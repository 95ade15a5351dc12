//! Costs of single nodes, counted by hand.

use mlxcel_ir::cost::{NodeCost, cost};
use mlxcel_ir::{Bindings, Symbol, text};

/// The cost of the last node of a graph with B = 2, T = 3, S = 10.
fn check(source: &str, expect: NodeCost) {
    let graph = text::parse(source).expect(source);
    let bindings = Bindings::new().with(Symbol::B, 2).with(Symbol::T, 3);
    let cost = cost(&graph, &bindings.with(Symbol::S, 10)).expect(source);
    assert_eq!(cost.nodes.last(), Some(&expect), "{source}");
}

#[test]
fn a_weight_counts_as_it_is_stored() {
    // 2 · 3 rows, 64 inputs, 32 outputs. Codes: 32 · 64 / 2 bytes; scales and biases: 32 · 2 groups
    // of two bf16 each.
    check(
        "func @f(%x: f32[B, T, 64])
           weight @w: affine4(group = 32, scale = bf16)[32, 64]
         { %1 = linear(%x) @w : f32[B, T, 32] return y = %1 }",
        NodeCost {
            flops: 2 * 6 * 64 * 32,
            weight_bytes: 1024 + 2 * 32 * 2 * 2,
            read_bytes: 6 * 64 * 4,
            written_bytes: 6 * 32 * 4,
            ..NodeCost::default()
        },
    );
}

#[test]
fn a_bias_is_one_addition_an_output() {
    check(
        "func @f(%x: f32[1, 2])
           weight @w: f32[3, 2]
           weight @b: f32[3]
         { %1 = linear(%x) @w @b : f32[1, 3] return y = %1 }",
        NodeCost {
            flops: 2 * 6 + 3,
            weight_bytes: 4 * (6 + 3),
            read_bytes: 8,
            written_bytes: 12,
            ..NodeCost::default()
        },
    );
}

#[test]
fn an_embedding_reads_the_rows_it_looks_up() {
    check(
        "func @f(%t: i32[B, T])
           weight @w: f16[1000, 8]
         { %1 = embedding(%t) @w : f32[B, T, 8] return y = %1 }",
        NodeCost {
            weight_bytes: 6 * 8 * 2,
            read_bytes: 6 * 4,
            written_bytes: 6 * 8 * 4,
            ..NodeCost::default()
        },
    );
}

fn attention(window: &str, positions: u64) {
    let source = format!(
        "func @f(%q: f32[B, T, 4, 8], %k: f32[B, T, 2, 8], %v: f32[B, T, 2, 4], %s: i32[B])
           state $c: f32 cache heads 2 key 8 value 4
         {{
           %4 = attention(%q, %k, %v, %s) $c {{scale = 1, mask = causal{window}, slopes = []}} : f32[B, T, 4, 4]
           return y = %4
         }}"
    );
    // A position of a row is 2 heads · (8 + 4) numbers. Each of 2 · 3 · 4 queries has a score for
    // each position: 8 + 4 multiply-adds, the scale, and 5 for the softmax.
    let position = 2 * (8 + 4) * 4;
    check(
        &source,
        NodeCost {
            flops: 2 * 3 * 4 * positions * (2 * (8 + 4) + 1 + 5),
            state_read_bytes: 2 * positions * position,
            state_written_bytes: 2 * 3 * position,
            read_bytes: 4 * (2 * 3 * (4 * 8 + 2 * 8 + 2 * 4) + 2),
            written_bytes: 2 * 3 * 4 * 4 * 4,
            ..NodeCost::default()
        },
    );
}

#[test]
fn attention_reads_the_cache() {
    attention("", 10);
}

#[test]
fn a_window_reads_what_its_queries_see_together() {
    attention(", window = 4", 4 + 2);
    attention(", window = 100", 10);
}

#[test]
fn a_convolution_reads_and_writes_its_memory() {
    // Each of 2 · 3 · 8 results is 4 multiply-adds and the bias; a row of the memory is 3 · 8 numbers.
    check(
        "func @f(%x: f32[B, T, 8], %n: i32[B])
           weight @w: f16[8, 4]
           weight @b: f32[8]
           state $m: f32 memory heads 1 key 3 value 8
         { %2 = causal_convolution(%x, %n) @w @b $m : f32[B, T, 8] return y = %2 }",
        NodeCost {
            flops: 2 * 3 * 8 * (2 * 4 + 1),
            weight_bytes: 8 * 4 * 2 + 8 * 4,
            state_read_bytes: 2 * 3 * 8 * 4,
            state_written_bytes: 2 * 3 * 8 * 4,
            read_bytes: 4 * (2 * 3 * 8 + 2),
            written_bytes: 4 * 2 * 3 * 8,
        },
    );
}

fn recurrence(op: &str, more: &str, each: u64, vectors: u64) {
    let (declared, used) = match more.is_empty() {
        true => (String::new(), ""),
        false => (more.to_string(), "%e, %w, "),
    };
    let source = format!(
        "func @f(%q: f32[B, T, 2, 16], %k: f32[B, T, 2, 16], %v: f32[B, T, 4, 8], %d: f32[B, T, 4, 1], {declared}%n: i32[B])
           state $m: f32 memory heads 4 key 16 value 8
         {{ %y = {op}(%q, %k, %v, %d, {used}%n) $m : f32[B, T, 4, 8] return y = %y }}"
    )
    .replace("%y", if more.is_empty() { "%5" } else { "%7" });
    // The memory of a row is 4 · 16 · 8 numbers, each of which every token decays, adds a product to
    // and reads in a product; a delta rule reads and subtracts a product besides.
    let memory = 4 * 16 * 8;
    check(
        &source,
        NodeCost {
            flops: 2 * 3 * memory * each,
            state_read_bytes: 2 * memory * 4,
            state_written_bytes: 2 * memory * 4,
            read_bytes: 4 * (2 * 3 * (vectors * 2 * 16 + 4 * 8 + 4) + 2),
            written_bytes: 4 * 2 * 3 * 4 * 8,
            ..NodeCost::default()
        },
    );
}

#[test]
fn a_recurrence_visits_its_memory_for_each_token() {
    recurrence("recurrence", "", 1 + 2 + 2, 2);
    let more = "%e: f32[B, T, 2, 16], %w: f32[B, T, 2, 16], ";
    recurrence("delta_recurrence", more, 1 + 2 + 2 + 2 + 2, 4);
}

fn experts(count: u64, chosen: u64, read: u64) {
    let source = format!(
        "func @f(%x: f32[B, T, 64], %e: i32[B, T, {chosen}])
           weight @w: affine4(group = 32, scale = f32)[{count}, 16, 64]
         {{ %2 = expert_linear(%x, %e) @w : f32[B, T, {chosen}, 16] return y = %2 }}"
    );
    // An expert is 16 · 64 / 2 bytes of codes and 16 · 2 groups of two f32 each.
    check(
        &source,
        NodeCost {
            flops: 2 * 6 * chosen * 64 * 16,
            weight_bytes: read * (16 * 64 / 2 + 16 * 2 * 8),
            read_bytes: 4 * (6 * 64 + 6 * chosen),
            written_bytes: 4 * 6 * chosen * 16,
            ..NodeCost::default()
        },
    );
}

#[test]
fn experts_are_read_once_and_only_if_chosen() {
    // 2 · 3 tokens choose two each.
    experts(128, 2, 12);
    experts(8, 2, 8);
}

#[test]
fn mutual_attention_has_no_state() {
    check(
        "func @f(%q: f32[B, T, 4, 8], %k: f32[B, T, 2, 8], %v: f32[B, T, 2, 4], %n: i32[B])
         { %4 = mutual_attention(%q, %k, %v, %n) {scale = 1} : f32[B, T, 4, 4] return y = %4 }",
        NodeCost {
            flops: 2 * 3 * 3 * 4 * (2 * (8 + 4) + 1 + 5),
            read_bytes: 4 * (6 * (4 * 8 + 2 * 8 + 2 * 4) + 2),
            written_bytes: 4 * 6 * 4 * 4,
            ..NodeCost::default()
        },
    );
}

#[test]
fn choosing_reads_every_number_once() {
    check(
        "func @f(%x: f32[B, 64]) { %1 = top_k(%x) {count = 4} : i32[B, 4] return y = %1 }",
        NodeCost {
            flops: 2 * 64,
            read_bytes: 2 * 64 * 4,
            written_bytes: 2 * 4 * 4,
            ..NodeCost::default()
        },
    );
    check(
        "func @f(%x: f32[B, 64], %i: i32[B, 4]) { %2 = take_along(%x, %i) : f32[B, 4] return y = %2 }",
        NodeCost {
            read_bytes: 2 * 4 * (4 + 4),
            written_bytes: 2 * 4 * 4,
            ..NodeCost::default()
        },
    );
}

#[test]
fn a_layer_norm_centres_squares_and_weighs() {
    check(
        "func @f(%x: f32[B, 16])
           weight @w: f32[16]
         { %1 = layer_norm(%x) @w {epsilon = 1.0, offset = 0.0} : f32[B, 16] return y = %1 }",
        NodeCost {
            flops: 2 * 16 * 7,
            weight_bytes: 16 * 4,
            read_bytes: 2 * 16 * 4,
            written_bytes: 2 * 16 * 4,
            ..NodeCost::default()
        },
    );
}

#[test]
fn a_dot_counts_what_it_sums_over() {
    check(
        "func @f(%a: f32[5, 7], %b: f32[5, 7])
         {
           %2 = dot(%a, %b) {lhs_batch = [0], rhs_batch = [0], lhs_contract = [1], rhs_contract = [1]} : f32[5]
           return y = %2
         }",
        NodeCost {
            flops: 2 * 5 * 7,
            read_bytes: 2 * 35 * 4,
            written_bytes: 5 * 4,
            ..NodeCost::default()
        },
    );
}

#[test]
fn a_reshape_is_free() {
    check(
        "func @f(%a: f32[6]) { %1 = reshape(%a) {shape = [2, 3]} : f32[2, 3] return y = %1 }",
        NodeCost::default(),
    );
}

#[test]
fn an_open_symbol_is_named() {
    let source = "func @f(%a: f32[T]) { %1 = exp(%a) : f32[T] return y = %1 }";
    let graph = text::parse(source).expect(source);
    let error = cost(&graph, &Bindings::new()).expect_err("T is open");
    assert_eq!(
        error.to_string(),
        "the cost depends on T, which is not bound"
    );
}
