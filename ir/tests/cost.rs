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
