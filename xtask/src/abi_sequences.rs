//! The descriptors of restartable sequences in a built library: what the kernel reads when it restarts one, and kills the process
//! over when it is wrong (rseq(2)).

use object::read::elf::{ElfFile64, FileHeader, Rela, SectionHeader};
use object::{Endianness, Object, ObjectSection, SectionFlags, elf};
use std::collections::BTreeMap;

/// The section that the descriptors stand in.
const SECTION: &str = "__rseq_cs";
/// Bytes of a descriptor, and what it is aligned to.
const SIZE: u64 = 32;
/// What stands before the address that a restart goes to.
const SIGNATURE: [u8; 4] = 0x5305_3053_u32.to_le_bytes();
/// No sequence here is longer, in bytes.
const LONGEST: u64 = 128;

/// A descriptor, as `struct rseq_cs` has it.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    version_and_flags: u64,
    start: u64,
    length: u64,
    abort: u64,
}

/// Memory that holds instructions.
struct Text<'data> {
    address: u64,
    bytes: &'data [u8],
}

impl Text<'_> {
    fn holds(&self, from: u64, to: u64) -> bool {
        self.address <= from && from <= to && to <= self.address + self.bytes.len() as u64
    }

    fn signed(&self, abort: u64) -> bool {
        let Some(end) = abort.checked_sub(self.address).map(|end| end as usize) else { return false };
        end.checked_sub(4).and_then(|start| self.bytes.get(start..end)) == Some(&SIGNATURE)
    }
}

impl Descriptor {
    /// What is wrong with it.
    fn fault(&self, texts: &[Text<'_>]) -> Option<&'static str> {
        let end = self.start.wrapping_add(self.length);
        if !self.address.is_multiple_of(SIZE) {
            Some("not aligned")
        } else if self.version_and_flags != 0 {
            Some("version or flags not 0")
        } else if self.length == 0 || self.length > LONGEST {
            Some("its length is not that of a short sequence")
        } else if !texts.iter().any(|text| text.holds(self.start, end)) {
            Some("the sequence is not in the text")
        } else if (self.start..end).contains(&self.abort) {
            Some("restarts into itself")
        } else if !texts.iter().any(|text| text.holds(self.abort, self.abort)) {
            Some("the restart is not in the text")
        } else if !texts.iter().any(|text| text.signed(self.abort)) {
            Some("no signature before the restart")
        } else {
            None
        }
    }
}

/// How many descriptors the library has, and what is wrong with them.
pub(crate) fn check(file: &ElfFile64<'_, Endianness>) -> object::Result<(usize, Vec<String>)> {
    let Some(section) = file.section_by_name(SECTION) else { return Ok((0, vec![])) };
    let executable = |flags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0);
    let mut texts = vec![];
    for text in file.sections().filter(|section| executable(section.flags())) {
        texts.push(Text { address: text.address(), bytes: text.data()? });
    }
    let moved = relative(file)?;
    let bytes = section.data()?;
    let mut faults = vec![];
    if !bytes.len().is_multiple_of(SIZE as usize) {
        faults.push(format!("{SECTION} has {} bytes, no multiple of {SIZE}", bytes.len()));
    }
    let (descriptors, _) = bytes.as_chunks::<{ SIZE as usize }>();
    for (descriptor, at) in descriptors.iter().zip((section.address()..).step_by(SIZE as usize)) {
        // The loader writes the addresses: their values are in the relocations.
        let word = |index: u64| {
            let (words, _) = descriptor.as_chunks::<8>();
            let in_place = u64::from_le_bytes(words[index as usize]);
            moved.get(&(at + 8 * index)).copied().unwrap_or(in_place)
        };
        let descriptor = Descriptor {
            address: at,
            version_and_flags: word(0),
            start: word(1),
            length: word(2),
            abort: word(3),
        };
        if let Some(fault) = descriptor.fault(&texts) {
            faults.push(format!("at {at:#x}: {fault}"));
        }
    }
    Ok((descriptors.len(), faults))
}

/// The addresses that the loader writes, by where.
fn relative(file: &ElfFile64<'_, Endianness>) -> object::Result<BTreeMap<u64, u64>> {
    let (endian, data) = (file.endian(), file.data());
    let kind = match file.elf_header().e_machine(endian) {
        elf::EM_AARCH64 => elf::R_AARCH64_RELATIVE,
        _ => elf::R_X86_64_RELATIVE,
    };
    let mut moved = BTreeMap::new();
    for section in file.elf_section_table().iter() {
        if let Some((relocations, _)) = section.rela(endian, data)? {
            for relocation in relocations.iter().filter(|one| one.r_type(endian, false) == kind) {
                moved.insert(relocation.r_offset(endian), relocation.r_addend(endian).cast_unsigned());
            }
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_descriptor_is_seen() {
        let mut bytes = vec![0x90; 64];
        bytes[40..44].copy_from_slice(&SIGNATURE);
        let texts = [Text { address: 0x1000, bytes: &bytes }];
        let good =
            Descriptor { address: 0x40, version_and_flags: 0, start: 0x1000, length: 16, abort: 0x102c };
        assert_eq!(good.fault(&texts), None);
        for bad in [
            Descriptor { address: 0x48, ..good },
            Descriptor { version_and_flags: 1, ..good },
            Descriptor { length: 0, ..good },
            Descriptor { length: 4096, ..good },
            Descriptor { start: 0xfff, ..good },
            Descriptor { start: 0x1038, ..good },
            Descriptor { abort: 0x1004, ..good },
            Descriptor { abort: 0x102d, ..good },
            Descriptor { abort: 0x2000, ..good },
            Descriptor { abort: 0, ..good },
        ] {
            assert!(bad.fault(&texts).is_some(), "{bad:?}");
        }
    }
}
