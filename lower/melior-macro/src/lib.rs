//! melior-macro
