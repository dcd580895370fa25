//! The environment that programs started from here see.

use crate::workspace;
use std::env;
use std::ffi::OsString;
use std::path::Path;

/// What `cargo run` and rustup's proxies changed in the environment of this program, undone: each entry is a
/// variable to remove (`None`) or to set.
///
/// Those variables describe the build of xtask itself, so programs started from here must not see them.
pub(crate) fn restored() -> Vec<(OsString, Option<OsString>)> {
    let mut changes = Vec::new();
    for (name, value) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let describes_build =
            matches!(
                text,
                "CARGO" | "OUT_DIR" | "RUSTUP_TOOLCHAIN" | "RUSTUP_TOOLCHAIN_SOURCE" | "RUST_RECURSION_COUNT"
            ) || ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
                .iter()
                .any(|prefix| text.starts_with(prefix));
        if describes_build {
            changes.push((name, None));
        } else if text == "LD_LIBRARY_PATH" {
            let kept: Vec<_> = env::split_paths(&value).filter(|dir| !is_cargos(dir)).collect();
            let kept = if kept.is_empty() { None } else { env::join_paths(kept).ok() };
            changes.push((name, kept));
        }
    }
    changes
}

/// Whether cargo put `dir` on the library path: its build folders and the toolchain's libraries.
fn is_cargos(dir: &Path) -> bool {
    dir.starts_with(workspace::target_dir())
        || env::var_os("RUSTUP_HOME").is_some_and(|home| dir.starts_with(home))
        || dir.components().any(|part| part.as_os_str() == ".rustup")
}
