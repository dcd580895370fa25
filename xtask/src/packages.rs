//! What the tests need from the system: found, or installed, or named.

use crate::exec::Job;
use crate::programs::interpreter;
use anyhow::{Result, bail};
use std::path::Path;

/// Something that a package brings.
struct Need {
    package: &'static str,
    present: fn() -> bool,
}

/// Nothing is run for another architecture.
const NATIVE: bool = cfg!(not(target_arch = "x86_64"));

/// The packages without services: a server's own package would start it.
const NEEDS: [Need; 23] = [
    Need { package: "gcc", present: || command("cc") },
    Need { package: "libc6-dev", present: || Path::new("/usr/include/stdlib.h").exists() },
    Need { package: "g++", present: || command("g++") },
    Need { package: "binutils", present: || command("objcopy") },
    Need { package: "git", present: || command("git") },
    Need { package: "perl", present: || command("perl") },
    Need { package: "lua5.4", present: || command("lua") },
    Need { package: "rustc", present: || Path::new("/usr/bin/rustc").exists() },
    Need { package: "nodejs", present: || command("node") },
    Need { package: "default-jdk-headless", present: || command("javac") && command("java") },
    Need { package: "sqlite3", present: || command("sqlite3") },
    Need { package: "lsof", present: || command("lsof") },
    Need { package: "valgrind", present: || command("valgrind") },
    Need { package: "libc6-dbg", present: || Path::new("/usr/lib/debug/.build-id").exists() },
    Need { package: "linux-perf", present: || command("perf") },
    Need { package: "redis-tools", present: || command("redis-benchmark") && command("redis-check-rdb") },
    Need { package: "sysbench", present: || command("sysbench") },
    Need { package: "mariadb-server-core", present: || command("mariadbd") && command("mariadb-install-db") },
    Need { package: "mariadb-client", present: || command("mariadb-slap") && command("mariadb-admin") },
    Need { package: "qemu-user", present: || NATIVE || command("qemu-aarch64") },
    Need { package: "gcc-aarch64-linux-gnu", present: || NATIVE || command("aarch64-linux-gnu-gcc") },
    Need {
        package: "libc6-dev-arm64-cross",
        present: || NATIVE || Path::new("/usr/aarch64-linux-gnu/lib/libc.so.6").exists(),
    },
    Need { package: "libtcmalloc-minimal4", present: || tcmalloc().is_some() },
];

/// Makes sure that all is there, and says what was done.
///
/// # Errors
/// Names the one command that brings what is missing.
pub(crate) fn provide() -> Result<String> {
    let before = missing();
    if before.is_empty() {
        return Ok("all there".into());
    }
    let line = format!("apt-get install --no-install-recommends {}", before.join(" "));
    // SAFETY: geteuid only returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || !command("apt-get") {
        bail!("missing from the system: run `{line}`");
    }
    println!("    {line}");
    let apt = || Job::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").limit(1200);
    apt().args(["-q", "update"]).run_ok()?;
    apt().args(["-q", "-y", "install", "--no-install-recommends"]).args(missing()).run_ok()?;
    let after = missing();
    if !after.is_empty() {
        bail!("still missing after the installation: {}", after.join(" "));
    }
    Ok(format!("installed {}", before.join(" ")))
}

fn missing() -> Vec<String> {
    let mut missing: Vec<String> =
        NEEDS.iter().filter(|need| !(need.present)()).map(|need| need.package.to_owned()).collect();
    if interpreter().is_err() {
        missing.push("python3".into());
        missing.push(test_suite());
    }
    missing
}

/// The package with the test suite of the distribution's Python, named after its version.
fn test_suite() -> String {
    let version =
        Job::new("apt-cache").args(["depends", "python3"]).run().map(|done| done.text()).unwrap_or_default();
    let version = version.split_whitespace().find_map(|word| word.strip_prefix("python3."));
    format!("libpython3.{}-testsuite", version.unwrap_or("11"))
}

fn command(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(name).is_file())
}

/// gperftools' minimal library, the peer of the instruction counts.
pub(crate) fn tcmalloc() -> Option<std::path::PathBuf> {
    let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [triplet.as_str(), "/usr/lib64", "/usr/lib"]
        .iter()
        .map(|dir| Path::new(dir).join("libtcmalloc_minimal.so.4"))
        .find(|path| path.exists())
}
