//! Peers that are published as crates: a library of our own few lines over each, made and built under target.
//!
//! An exported function is one jump to the peer's, so a peer pays one instruction a call for it.

use super::results;
use crate::exec::Job;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A peer's crate and what its functions are called.
pub(crate) struct Shim {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// The crate, and how Cargo.toml asks for it.
    package: &'static str,
    dependency: &'static str,
    malloc: &'static str,
    free: &'static str,
    calloc: &'static str,
    realloc: &'static str,
    usable: &'static str,
    /// A call with `align` and `size`.
    aligned: &'static str,
    /// Functions that the crate does not declare although its library has them.
    declared: &'static str,
    /// A variable that programs on this heap need.
    pub(crate) variable: Option<(&'static str, &'static str)>,
}

/// All such peers.
pub(crate) const SHIMS: &[Shim] = &[
    Shim {
        name: "mimalloc 3",
        package: "libmimalloc-sys",
        dependency: r#"{ version = "0.1.49", features = ["extended"] }"#,
        malloc: "mi_malloc",
        free: "mi_free",
        calloc: "mi_calloc",
        realloc: "mi_realloc",
        usable: "mi_usable_size",
        aligned: "mi_malloc_aligned(size, align)",
        declared: "",
        variable: None,
    },
    Shim {
        name: "snmalloc",
        package: "snmalloc-sys",
        dependency: r#"{ version = "0.7.6", default-features = false, features = ["build_cc", "libc-api"] }"#,
        malloc: "sn_malloc",
        free: "sn_free",
        calloc: "sn_calloc",
        realloc: "sn_realloc",
        usable: "sn_malloc_usable_size",
        aligned: "sn_rust_alloc(align, size)",
        declared: "",
        variable: None,
    },
    Shim {
        name: "tcmalloc",
        package: "libtcmalloc-sys",
        dependency: r#"{ version = "0.1.14", default-features = false, features = ["8k_pages"] }"#,
        malloc: "TCMallocInternalMalloc",
        free: "TCMallocInternalFree",
        calloc: "TCMallocInternalCalloc",
        realloc: "TCMallocInternalRealloc",
        usable: "TCMallocInternalMallocSize",
        aligned: "TCMallocInternalMemalign(align, size)",
        declared: r#"unsafe extern "C" {
    fn TCMallocInternalMalloc(size: usize) -> Block;
    fn TCMallocInternalFree(block: Block);
    fn TCMallocInternalCalloc(count: usize, size: usize) -> Block;
    fn TCMallocInternalRealloc(block: Block, size: usize) -> Block;
    fn TCMallocInternalMallocSize(block: Block) -> usize;
    fn TCMallocInternalMemalign(align: usize, size: usize) -> Block;
}
"#,
        // Its caches per CPU need the threads' rseq areas, which the C library registers otherwise.
        variable: Some(("GLIBC_TUNABLES", "glibc.pthread.rseq=0")),
    },
];

/// Builds a peer's library where it is not there yet; returns its path and the version of the crate.
///
/// # Errors
/// When the crate cannot be had or built; the message says why.
pub(crate) fn build(shim: &Shim) -> Result<(PathBuf, String)> {
    let dir = results::folder()?.join("peers").join(shim.name.replace(' ', "-"));
    std::fs::create_dir_all(dir.join("src"))?;
    write(&dir.join("Cargo.toml"), &manifest(shim))?;
    write(&dir.join("src/lib.rs"), &source(shim))?;
    let cargo = || Job::new("cargo").dir(&dir).env("CARGO_TARGET_DIR", dir.join("target")).limit(1200);
    cargo().args(["build", "--release", "--quiet"]).run_ok()?;
    let metadata = cargo().args(["metadata", "--format-version=1", "--quiet"]).run_ok()?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let package = packages.iter().find(|p| p["name"] == shim.package).context("no such package")?;
    let version = package["version"].as_str().unwrap_or("?");
    Ok((dir.join("target/release/libpeer.so"), format!("crate {} {version}", shim.package)))
}

/// Leaves an unchanged file alone, for cargo's sake.
fn write(file: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(file).ok().as_deref() != Some(text) {
        std::fs::write(file, text)?;
    }
    Ok(())
}

fn manifest(shim: &Shim) -> String {
    format!(
        "[package]\nname = \"peer\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\n{} = {}\n\n\
         [profile.release]\npanic = \"abort\"\nlto = \"fat\"\ncodegen-units = 1\n",
        shim.package, shim.dependency
    )
}

fn source(shim: &Shim) -> String {
    TEMPLATE
        .replace("@PACKAGE@", &shim.package.replace('-', "_"))
        .replace("@MALLOC@", shim.malloc)
        .replace("@FREE@", shim.free)
        .replace("@REALLOC@", shim.realloc)
        .replace("@CALLOC@", shim.calloc)
        .replace("@USABLE@", shim.usable)
        .replace("@ALIGNED@", shim.aligned)
        .replace("@DECLARED@", shim.declared)
}

const TEMPLATE: &str = r#"#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc, non_snake_case)]
#[allow(unused_imports)]
use @PACKAGE@::*;
use std::ffi::{c_int, c_void};

type Block = *mut c_void;

@DECLARED@
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> Block {
    @MALLOC@(size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Block) {
    @FREE@(block)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> Block {
    @CALLOC@(count, size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: Block, size: usize) -> Block {
    @REALLOC@(block, size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Block) -> usize {
    @USABLE@(block)
}
unsafe fn aligned(align: usize, size: usize) -> Block {
    @ALIGNED@ as Block
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> Block {
    aligned(align, size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> Block {
    aligned(align, size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut Block, align: usize, size: usize) -> c_int {
    let block = aligned(align, size);
    if block.is_null() {
        return 12;
    }
    *out = block;
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> Block {
    aligned(4096, size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> Block {
    aligned(4096, size.next_multiple_of(4096))
}

unsafe fn new(size: usize) -> Block {
    let block = @MALLOC@(size);
    if block.is_null() {
        std::process::abort();
    }
    block
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Znwm(size: usize) -> Block {
    new(size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Znam(size: usize) -> Block {
    new(size)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPv(block: Block) {
    @FREE@(block)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPv(block: Block) {
    @FREE@(block)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvm(block: Block, _: usize) {
    @FREE@(block)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPvm(block: Block, _: usize) {
    @FREE@(block)
}
"#;
