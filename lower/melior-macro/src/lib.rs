//! The macros that melior's source invokes, written so that building them needs no LLVM.
//!
//! The crate of this name on the registry reads TableGen files through LLVM's C++ libraries in order
//! to make one Rust function per MLIR operation. mlxcel builds operations by name, so here
//! [`dialect!`] expands to nothing, and so do the lists of passes: the compiler library has its own
//! pipelines and exports few of those constructors. What melior itself needs is made as it
//! expects: the `is_*` tests of types and attributes and the small constructors of two dialects.
//!
//! The inputs are lists of identifiers with fixed punctuation, so there is no parser: each macro
//! picks the identifiers out of the token stream.

use proc_macro::{TokenStream, TokenTree};

/// Expands to nothing.
#[proc_macro]
pub fn dialect(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Expands to nothing.
#[proc_macro]
pub fn passes(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Expands to nothing.
#[proc_macro]
pub fn conversion_passes(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// From `mlirTypeIsAFloat, ...` the methods `is_float(&self) -> bool` of types.
#[proc_macro]
pub fn type_check_functions(input: TokenStream) -> TokenStream {
    check_functions(input, "mlirTypeIsA")
}

/// From `mlirAttributeIsAFloat, ...` the methods `is_float(&self) -> bool` of attributes.
#[proc_macro]
pub fn attribute_check_functions(input: TokenStream) -> TokenStream {
    check_functions(input, "mlirAttributeIsA")
}

/// From `dialect, [add, ...]` constructors of operations with two operands of one type.
#[proc_macro]
pub fn binary_operations(input: TokenStream) -> TokenStream {
    operations(input, "lhs, rhs", "", true)
}

/// From `dialect, [neg, ...]` constructors of operations with one operand of the result's type.
#[proc_macro]
pub fn unary_operations(input: TokenStream) -> TokenStream {
    operations(input, "operand", "", true)
}

/// From `dialect, [cast, ...]` constructors of operations with one operand and a given result type.
#[proc_macro]
pub fn typed_unary_operations(input: TokenStream) -> TokenStream {
    operations(input, "operand", "result: crate::ir::Type<'c>,", false)
}

fn check_functions(input: TokenStream, prefix: &str) -> TokenStream {
    let source: String = identifiers(input)
        .iter()
        .filter_map(|function| {
            let name = snake_case(function.strip_prefix(prefix)?);
            Some(format!(
                "/// Whether `{function}` holds.
                fn is_{name}(&self) -> bool {{
                    unsafe {{ mlir_sys::{function}(self.to_raw()) }}
                }}"
            ))
        })
        .collect();
    parse(&source)
}

fn operations(
    input: TokenStream,
    operands: &str,
    result_parameter: &str,
    infers_result: bool,
) -> TokenStream {
    let identifiers = identifiers(input);
    let Some((dialect, names)) = identifiers.split_first() else {
        return parse("compile_error!(\"expected a dialect and a list of operations\");");
    };
    let parameters: String = operands
        .split(", ")
        .map(|operand| format!("{operand}: crate::ir::Value<'c, '_>,"))
        .collect();
    let result = if infers_result {
        ".enable_result_type_inference()"
    } else {
        ".add_results(&[result])"
    };
    let source: String = names
        .iter()
        .map(|name| {
            let function = name.strip_prefix("r#").unwrap_or(name);
            format!(
                "/// Creates an operation `{dialect}.{function}`.
                pub fn {name}<'c>(
                    {parameters}
                    {result_parameter}
                    location: crate::ir::Location<'c>,
                ) -> crate::ir::Operation<'c> {{
                    crate::ir::operation::OperationBuilder::new(\"{dialect}.{function}\", location)
                        .add_operands(&[{operands}])
                        {result}
                        .build()
                        .expect(\"valid operation\")
                }}"
            )
        })
        .collect();
    parse(&source)
}

/// The identifiers in order, those within brackets included.
fn identifiers(input: TokenStream) -> Vec<String> {
    input
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Ident(identifier) => vec![identifier.to_string()],
            TokenTree::Group(group) => identifiers(group.stream()),
            TokenTree::Punct(_) | TokenTree::Literal(_) => Vec::new(),
        })
        .collect()
}

fn parse(source: &str) -> TokenStream {
    source.parse().unwrap_or_else(|error| {
        format!("compile_error!(\"melior-macro made invalid code: {error}\");")
            .parse()
            .unwrap_or_default()
    })
}

/// `DenseFPElements` becomes `dense_fp_elements`: a word starts at a capital that follows a small
/// letter or a digit, or that stands before a small letter.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(index + 1);
        let starts_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase()
                    || after.is_some_and(|after| after.is_ascii_lowercase())
            });
        if starts_word {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn names_in_snake_case() {
        let check = |name, expect| assert_eq!(snake_case(name), expect);
        check("Bool", "bool");
        check("DenseFPElements", "dense_fp_elements");
        check("DenseI64Array", "dense_i64_array");
        check("MemRef", "mem_ref");
        check("BF16", "bf16");
    }
}
