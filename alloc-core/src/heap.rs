//! Placeholder.

/// Placeholder.
pub(crate) struct Owner;
