//! C++'s operators new and delete, in all their forms.
//!
//! A program may replace any of them. The standard's own array, sized and nothrow forms therefore go through the plain
//! forms, whoever defines those, and so do ours: by a jump through the loader's table, or, where the form has a fast path
//! of its own, after a look whether the plain forms are ours.

mod delete;
mod new;
mod replaced;

pub use delete::*;
pub use new::*;
