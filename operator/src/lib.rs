//! The Felix operator.
