//! The front end.
pub(crate) mod bins;
