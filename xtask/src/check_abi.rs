//! `check-abi`: is this file fit to be preloaded into any program?
//!
//! Reads the ELF file alone; nothing is loaded or run.

use crate::{Outcome, Usage, abi_sequences, abi_symbols};
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolIndex};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) const USAGE: Usage =
    Usage { line: "check-abi PATH", job: "check exports, dependencies and layout of a built library" };

/// Bytes of constants and code, cold functions apart, that a process may have resident: two groups of pages that the kernel maps at once.
const RESIDENT: u64 = 128 << 10;

/// The soname: the file's name and the version of the interface.
pub(crate) const SONAME: &str = "libstratalloc.so.0";
/// The most static TLS that a late `dlopen` can be expected to find free.
const MAX_TLS: u64 = 64;
/// The newest glibc that the library may need.
const MAX_GLIBC: (u32, u32) = (2, 28);
/// Parts of the names of formatting code, which a message of a panic would bring along.
const FORMATTING: &[&str] = &["4core3fmt", "core::fmt"];

type Elf<'data> = ElfFile64<'data, Endianness>;

pub(crate) fn run(args: &[OsString]) -> Outcome {
    let [path] = args else { return USAGE.misused(args) };
    if path.as_encoded_bytes().starts_with(b"-") {
        return USAGE.misused(args);
    }
    let report = check(Path::new(path))?;
    print!("{report}");
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found, one line a check.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<(bool, String)>,
}

impl Report {
    /// Whether every check passed.
    pub(crate) fn passed(&self) -> bool {
        self.lines.iter().all(|(passed, _)| *passed)
    }

    fn add(&mut self, passed: bool, line: String) {
        self.lines.push((passed, line));
    }

    /// A check that passes when `faults` is empty; `what` describes it.
    fn none(&mut self, what: String, faults: &[String]) {
        let line = if faults.is_empty() { what } else { format!("{what}: {}", faults.join(", ")) };
        self.add(faults.is_empty(), line);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (passed, line) in &self.lines {
            writeln!(out, "{} {line}", if *passed { "  ok  " } else { " FAIL " })?;
        }
        Ok(())
    }
}

/// Checks a library; the symbols of a stripped one are read from `PATH.debug` beside it.
///
/// # Errors
/// A message when the file cannot be read as a 64-bit ELF file; a failed check is no error.
pub(crate) fn check(path: &Path) -> Result<Report, String> {
    let data = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut report = Report::default();
    let result = Elf::parse(&*data).and_then(|file| {
        dynamic_section(&file, &mut report)?;
        segments(&file, &mut report)?;
        layout(&file, &mut report);
        thread_local_storage(&file, &mut report)?;
        sequences(&file, &mut report)?;
        glibc_versions(&file, &mut report)?;
        exports(&file, &mut report);
        Ok(())
    });
    result.map_err(|e| format!("{}: {e}", path.display()))?;
    let mut debug = path.as_os_str().to_owned();
    debug.push(".debug");
    formatting(&data, &PathBuf::from(debug), &mut report)?;
    Ok(report)
}

fn dynamic_section(file: &Elf<'_>, report: &mut Report) -> object::Result<()> {
    let (endian, data) = (file.endian(), file.data());
    let sections = file.elf_section_table();
    let (mut soname, mut needed, mut flags_1, mut text_relocations) = (String::new(), vec![], 0, false);
    if let Some((entries, link)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        for entry in entries {
            let name = || entry.string(endian, strings).map(|s| String::from_utf8_lossy(s).into_owned());
            match entry.tag32(endian) {
                Some(elf::DT_SONAME) => soname = name()?,
                Some(elf::DT_NEEDED) => needed.push(name()?),
                Some(elf::DT_FLAGS_1) => flags_1 = entry.val32(endian).unwrap_or(0),
                Some(elf::DT_TEXTREL) => text_relocations = true,
                _ => {}
            }
        }
    }
    report.add(soname == SONAME, format!("soname {soname}"));
    let foreign = |name: &&String| *name != "libc.so.6" && !name.starts_with("ld-linux");
    let others: Vec<String> = needed.iter().filter(foreign).cloned().collect();
    report.none(format!("needs {}", needed.join(" ")), &others);
    report.add(flags_1 & elf::DF_1_NODELETE != 0, "stays loaded after dlclose (NODELETE)".into());
    report.add(flags_1 & elf::DF_1_NOW != 0, "binds at load (NOW)".into());
    report.add(!text_relocations, "no text relocations".into());
    Ok(())
}

fn segments(file: &Elf<'_>, report: &mut Report) -> object::Result<()> {
    let endian = file.endian();
    let mut faults = vec![];
    for header in file.elf_program_headers() {
        let (kind, flags) = (header.p_type(endian), header.p_flags(endian));
        if kind == elf::PT_LOAD && flags & (elf::PF_W | elf::PF_X) == (elf::PF_W | elf::PF_X) {
            faults.push(format!("segment at {:#x}", header.p_vaddr(endian)));
        }
        if kind == elf::PT_GNU_STACK && flags & elf::PF_X != 0 {
            faults.push("the stack".into());
        }
    }
    report.none("no memory both writable and executable".into(), &faults);
    Ok(())
}

/// What every process maps ends at a boundary of what the kernel maps at once; see `alloc-ffi/layout.ld`.
fn layout(file: &Elf<'_>, report: &mut Report) {
    let end = file.section_by_name(".text").map_or(u64::MAX, |text| text.address() + text.size());
    report.add(
        end <= RESIDENT && file.section_by_name(".text.unlikely").is_some(),
        format!("cold code apart; the rest ends at {end:#x}, at most {RESIDENT:#x}"),
    );
}

fn thread_local_storage(file: &Elf<'_>, report: &mut Report) -> object::Result<()> {
    let (endian, data) = (file.endian(), file.data());
    let size = file
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == elf::PT_TLS)
        .map(|header| header.p_memsz(endian))
        .sum::<u64>();
    report.add(size <= MAX_TLS, format!("thread-local storage {size} bytes, at most {MAX_TLS}"));

    let machine = file.elf_header().e_machine(endian);
    let (initial_exec, others): (u32, &[u32]) = match machine {
        elf::EM_AARCH64 => (
            elf::R_AARCH64_TLS_TPREL,
            &[elf::R_AARCH64_TLS_DTPMOD, elf::R_AARCH64_TLS_DTPREL, elf::R_AARCH64_TLSDESC],
        ),
        _ => {
            (elf::R_X86_64_TPOFF64, &[elf::R_X86_64_DTPMOD64, elf::R_X86_64_DTPOFF64, elf::R_X86_64_TLSDESC])
        }
    };
    let (mut good, mut faults) = (0, vec![]);
    for section in file.elf_section_table().iter() {
        if let Some((relocations, _)) = section.rela(endian, data)? {
            for relocation in relocations {
                let kind = relocation.r_type(endian, false);
                good += usize::from(kind == initial_exec);
                if others.contains(&kind) {
                    faults.push(format!("relocation {kind} at {:#x}", relocation.r_offset(endian)));
                }
            }
        }
    }
    report.none(format!("thread-local storage is initial-exec ({good} relocations)"), &faults);
    let calls = file.dynamic_symbols().any(|s| s.is_undefined() && s.name() == Ok("__tls_get_addr"));
    report.add(!calls, "no call of __tls_get_addr".into());
    // GNU ld sets the flag on some architectures alone; the relocations say the same.
    if size > 0 && machine == elf::EM_X86_64 {
        let mut flags = 0;
        if let Some((entries, _)) = file.elf_section_table().dynamic(endian, data)? {
            let found = entries.iter().find(|e| e.tag32(endian) == Some(elf::DT_FLAGS));
            flags = found.and_then(|e| e.val32(endian)).unwrap_or(0);
        }
        report.add(flags & elf::DF_STATIC_TLS != 0, "flagged STATIC_TLS".into());
    }
    Ok(())
}

fn sequences(file: &Elf<'_>, report: &mut Report) -> object::Result<()> {
    let (count, faults) = abi_sequences::check(file)?;
    report.none(format!("{count} restartable sequences, each with a sound descriptor"), &faults);
    if file.elf_header().e_machine(file.endian()) == elf::EM_X86_64 {
        report.add(count > 0, "restartable sequences for the CPUs' caches".into());
    }
    Ok(())
}

fn glibc_versions(file: &Elf<'_>, report: &mut Report) -> object::Result<()> {
    let (endian, data) = (file.endian(), file.data());
    let sections = file.elf_section_table();
    let (mut highest, mut faults) = ((0, 0), vec![]);
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((_, mut versions)) = needs.next()? {
            while let Some(version) = versions.next()? {
                let name = String::from_utf8_lossy(version.name(endian, strings)?).into_owned();
                let weak = version.vna_flags.get(endian) & elf::VER_FLG_WEAK != 0;
                match parse_glibc(&name) {
                    Some(number) if number <= MAX_GLIBC => highest = highest.max(number),
                    // The loader does not insist on a version that only weak symbols have.
                    Some(_) if weak => {}
                    _ => faults.push(format!("{name}{}", users_of(file, &name))),
                }
            }
        }
    }
    let ((major, minor), (max_major, max_minor)) = (highest, MAX_GLIBC);
    report.none(format!("needs glibc {major}.{minor}, at most {max_major}.{max_minor}"), &faults);
    Ok(())
}

/// `GLIBC_2.17` as (2, 17).
fn parse_glibc(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

/// Which symbols need a version, for the message.
fn users_of(file: &Elf<'_>, version: &str) -> String {
    let Ok(Some(versions)) = file.elf_section_table().versions(file.endian(), file.data()) else {
        return String::new();
    };
    let mut users = String::new();
    for (index, symbol) in file.elf_dynamic_symbol_table().enumerate() {
        let position = versions.version_index(file.endian(), SymbolIndex(index.0));
        let needs = versions.version(position).ok().flatten().is_some_and(|v| v.name() == version.as_bytes());
        if needs && let Ok(name) = symbol.name(file.endian(), file.elf_dynamic_symbol_table().strings()) {
            users += &format!(" {}", String::from_utf8_lossy(name));
        }
    }
    format!(" ({})", users.trim_start())
}

fn exports(file: &Elf<'_>, report: &mut Report) {
    let found: BTreeSet<&str> =
        file.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok()).collect();
    let missing: Vec<String> =
        abi_symbols::required().filter(|name| !found.contains(name)).map(str::to_owned).collect();
    report.none(format!("{} exports, none missing", found.len()), &missing);
    let extra: Vec<String> =
        found.iter().filter(|name| !abi_symbols::allowed(name)).map(|&name| name.to_owned()).collect();
    report.none("no export beside the allocation family".into(), &extra);
}

/// Nothing in a malloc may format: a wrong assertion says where it is, and no more.
fn formatting(data: &[u8], debug: &Path, report: &mut Report) -> Result<(), String> {
    let separate = std::fs::read(debug).ok();
    let parsed = Elf::parse(separate.as_deref().unwrap_or(data));
    let file = parsed.map_err(|e| format!("{}: {e}", debug.display()))?;
    if file.symbols().next().is_none() {
        report.add(false, format!("no formatting machinery: no symbols to look at (no {})", debug.display()));
        return Ok(());
    }
    let machinery = |name: &str| FORMATTING.iter().any(|part| name.contains(part));
    let found: Vec<String> = file
        .symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| machinery(name))
        .map(str::to_owned)
        .collect();
    report.none("no formatting machinery".into(), &found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_wrong_with_another_library() {
        let process = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc =
            process.lines().filter_map(|l| l.split_whitespace().last()).find(|p| p.contains("libc.so"));
        let report = check(Path::new(libc.expect("the test runs on a libc"))).unwrap().to_string();
        for fault in [" FAIL  soname libc.so.6", " FAIL  stays loaded", " FAIL  no export beside", "getenv"] {
            assert!(report.contains(fault), "no {fault:?} in:\n{report}");
        }
    }

    #[test]
    fn compares_glibc_versions_as_numbers() {
        assert_eq!(parse_glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert!(parse_glibc("GLIBC_2.4") < parse_glibc("GLIBC_2.28"));
        assert_eq!(parse_glibc("GLIBC_PRIVATE"), None);
        assert_eq!(parse_glibc("GCC_3.0"), None);
    }
}
