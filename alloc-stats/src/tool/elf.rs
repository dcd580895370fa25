//! The note in an object's memory that leads to the stats page.

use crate::error::Error;
use crate::target::{Object, Target};
use alloc_core::stats_page::{NOTE_OWNER, NOTE_SIZE, NOTE_TYPE};

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PAGE: u64 = 4096;
/// No object's notes are longer; a damaged header must not make us read for ever.
const MOST: u64 = 1 << 20;

/// What the note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Address of the page.
    pub(crate) page: u64,
    /// Version of its layout.
    pub(crate) layout: u32,
    /// Its size in bytes.
    pub(crate) size: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A program header: its type, offset, address and size in memory.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// Finds the note in the memory of a mapped object; `None` if it has none, or is no object.
pub(crate) fn find(target: &mut Target, object: &Object) -> Result<Option<Note>, Error> {
    let mut header = [0; 64];
    match target.read(object.start, &mut header) {
        Ok(()) => {}
        // A mapped file that was cut short cannot be read; that is no reason to give up on the others.
        Err(Error::Io(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    // 64-bit, little-endian: all that we run on.
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(None);
    }
    let Some(segments) = segments(target, object, &header) else { return Ok(None) };
    let Some(first) = segments.iter().find(|s| s.kind == PT_LOAD && s.offset < PAGE) else { return Ok(None) };
    let bias = object.start.wrapping_sub(first.address.wrapping_sub(first.offset) & !(PAGE - 1));
    for segment in segments.iter().filter(|s| s.kind == PT_NOTE && s.size <= MOST) {
        let address = bias.wrapping_add(segment.address);
        let mut bytes = vec![0; segment.size as usize];
        if target.read(address, &mut bytes).is_ok()
            && let Some(note) = in_notes(address, &bytes)
        {
            return Ok(Some(note));
        }
    }
    Ok(None)
}

fn segments(target: &mut Target, object: &Object, header: &[u8]) -> Option<Vec<Segment>> {
    let (offset, size, count) = (u64_at(header, 32)?, u16_at(header, 54)?, u16_at(header, 56)?);
    if size != 56 || offset > MOST {
        return None;
    }
    let mut bytes = vec![0; usize::from(size) * usize::from(count)];
    target.read(object.start + offset, &mut bytes).ok()?;
    let segment = |b: &[u8]| {
        Some(Segment {
            kind: u32_at(b, 0)?,
            offset: u64_at(b, 8)?,
            address: u64_at(b, 16)?,
            size: u64_at(b, 40)?,
        })
    };
    bytes.chunks_exact(usize::from(size)).map(segment).collect()
}

/// Finds our note in a segment of notes. The padding of names is 4 bytes in such segments, and so is ours.
fn in_notes(address: u64, bytes: &[u8]) -> Option<Note> {
    let mut at = 0;
    loop {
        let (name_size, size) = (u32_at(bytes, at)? as usize, u32_at(bytes, at + 4)? as usize);
        let kind = u32_at(bytes, at + 8)?;
        let name = at + 12;
        let content = name.checked_add(name_size.checked_next_multiple_of(4)?)?;
        if kind == NOTE_TYPE && size == NOTE_SIZE && bytes.get(name..name + name_size)? == NOTE_OWNER {
            let distance = u64_at(bytes, content)?;
            return Some(Note {
                page: (address + content as u64).wrapping_add(distance),
                layout: u32_at(bytes, content + 8)?,
                size: u32_at(bytes, content + 12)?,
            });
        }
        at = content.checked_add(size.checked_next_multiple_of(4)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![];
        for word in [owner.len() as u32, content.len() as u32, kind] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(owner);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn content(distance: i64) -> Vec<u8> {
        let mut bytes = distance.to_le_bytes().to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(99u32.to_le_bytes());
        bytes
    }

    #[test]
    fn ours_is_found_among_others() {
        let mut bytes = note(b"GNU\0", 3, &[1; 20]);
        bytes.extend(note(NOTE_OWNER, 7, &content(1)));
        let start = bytes.len() as u64;
        bytes.extend(note(NOTE_OWNER, NOTE_TYPE, &content(-0x100)));
        let found = in_notes(0x5000, &bytes).unwrap();
        assert_eq!(found, Note { page: 0x5000 + start + 24 - 0x100, layout: 3, size: 99 });
    }

    #[test]
    fn damaged_notes_end_the_search() {
        let whole = note(NOTE_OWNER, NOTE_TYPE, &content(8));
        for len in 0..whole.len() {
            assert_eq!(in_notes(0, &whole[..len]), None);
        }
        assert_eq!(in_notes(0, &[0xff; 64]), None);
        assert_eq!(in_notes(0, &[0; 64]), None);
    }
}
