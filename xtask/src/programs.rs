//! Real programs on the heap: each gives the same results as under the C library's heap, on every backend.

mod commands;
mod mariadb;
mod python;
mod redis;
mod trial;

pub(crate) use python::interpreter;
pub(crate) use trial::{Outcome, Trial};

use std::path::Path;

/// A program of the battery.
pub(crate) struct Program {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// Makes the input, once; runs read it and leave it alone.
    pub(crate) prepare: fn(&Path) -> anyhow::Result<()>,
    /// Runs it once and returns the result to compare.
    pub(crate) run: fn(&Trial) -> anyhow::Result<Outcome>,
    /// Whether it brings an allocator of its own, which the comparison must not measure.
    pub(crate) own_allocator: bool,
}

/// All programs.
pub(crate) const PROGRAMS: [Program; 13] = [
    program("bash", commands::nothing, commands::bash),
    program("git", commands::git_history, commands::git),
    program("perl", commands::nothing, commands::perl),
    program("python", commands::nothing, python::work),
    program("python suite", commands::nothing, python::suite),
    program("lua", commands::nothing, commands::lua),
    program("g++", commands::nothing, commands::gxx),
    program("rustc", commands::nothing, commands::rustc),
    program("node", commands::nothing, commands::node),
    program("java", commands::java_class, commands::java),
    program("sqlite3", commands::nothing, commands::sqlite),
    Program { own_allocator: true, ..program("redis", redis::prepare, redis::run) },
    program("mariadbd", mariadb::prepare, mariadb::run),
];

const fn program(
    name: &'static str,
    prepare: fn(&Path) -> anyhow::Result<()>,
    run: fn(&Trial) -> anyhow::Result<Outcome>,
) -> Program {
    Program { name, prepare, run, own_allocator: false }
}
