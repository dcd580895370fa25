//! `malloc` and `free` from end to end without a miss: with the threads' bins, or, when the CPUs' caches are in use, with those.
//!
//! Which of the two is asked for nothing: each call compares its argument with a bound anyway, a size with the end of the small
//! ones, an address with the end of the page map. While the CPUs' caches are in use both bounds are 0. Every call then leaves
//! at that comparison, for a naked half that compares with the true bound and does the rest in one restartable sequence
//! ([`crate::front::per_cpu`]).

use super::{AllocSlow, FreeSlow};
use crate::front::bins::Bins;
use crate::front::per_cpu;
use crate::page_map::{self, PAGE_MAP};
use crate::tls;
use core::arch::{asm, naked_asm};
use core::mem::offset_of;
use size_classes::{CLASSES, MAX_TINY};

/// Where in the page map the table of the CPUs' bins is, and that of the classes of small sizes.
const BINS_AT: usize = page_map::CPUS_AT + offset_of!(per_cpu::Tables, bins);
const CLASS_OF_AT: usize = page_map::CPUS_AT + offset_of!(per_cpu::Tables, class_of);

/// A block of at least `size` bytes out of the cache in use; else what `S` gives.
#[inline(always)]
pub fn alloc_or<S: AllocSlow>(size: usize) -> *mut u8 {
    // SAFETY: compares; both ways on are safe.
    unsafe {
        asm!(
            "cmp {size}, qword ptr [rip + {bounds}]",
            "jae {beyond}",
            size = in(reg) size,
            bounds = sym per_cpu::BOUNDS,
            beyond = label { return alloc_shared::<S>(size) },
            options(nostack, readonly)
        );
        // The bound is 0 or the first size that is not small.
        core::hint::assert_unchecked(size <= MAX_TINY);
    }
    let object = super::pop(CLASSES.class_of_small(size));
    if object.is_null() { S::slow(size) } else { object }
}

/// Frees a block into the cache in use; else has `S` see to it.
///
/// # Safety
/// As for [`super::free`].
#[inline(always)]
pub unsafe fn free_or<S: FreeSlow>(block: *mut u8) {
    let (part, page) = page_map::split(block.addr());
    // SAFETY: compares; both ways on are safe, as far as the caller's contract goes.
    unsafe {
        asm!(
            "cmp {part}, qword ptr [rip + {bounds} + 8]",
            "jae {beyond}",
            part = in(reg) part,
            bounds = sym per_cpu::BOUNDS,
            // SAFETY: handed on to the caller.
            beyond = label { unsafe { return free_shared::<S>(block, part, page) } },
            options(nostack, readonly)
        );
        // The bound is 0 or the length of the root.
        let class = PAGE_MAP.class_of_page(part, page);
        // As in `free_fast`.
        if !Bins::push(tls::slot(), class, block) {
            S::slow(block);
        }
    }
}

/// The CPU's half of [`alloc_or`].
#[unsafe(naked)]
extern "C" fn alloc_shared<S: AllocSlow>(size: usize) -> *mut u8 {
    naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {max}",
        "ja {slow}",
        "lea r8, [rip + {map}]",
        "movzx esi, byte ptr [r8 + rdi + {class_of}]",
        "mov rdx, qword ptr [rip + {offset}]",
        per_cpu::straight!(
            "mov rax, qword ptr [rax]",
            "test rax, rax",
            "jz {slow}",
            "sub qword ptr [rcx + rsi*8], 8",
        ),
        "ret",
        ".cfi_endproc",
        max = const MAX_TINY,
        slow = sym S::slow,
        map = sym PAGE_MAP,
        class_of = const CLASS_OF_AT,
        offset = sym per_cpu::OFFSET,
        table = const BINS_AT,
        restarts = sym per_cpu::RESTARTS,
    )
}

/// The CPU's half of [`free_or`]; `part` and `page` are what the page map splits the address into.
///
/// # Safety
/// As for [`super::free`].
#[unsafe(naked)]
unsafe extern "C" fn free_shared<S: FreeSlow>(block: *mut u8, part: usize, page: usize) {
    naked_asm!(
        ".cfi_startproc",
        "cmp rsi, {parts}",
        "jae {slow}",
        "lea r8, [rip + {map}]",
        "mov rax, qword ptr [r8 + rsi*8]",
        "add rdx, r8",
        "movzx esi, byte ptr [rdx + rax + {zero}]",
        "mov rdx, qword ptr [rip + {offset}]",
        per_cpu::straight!(
            "cmp qword ptr [rax], rdi",
            "je {slow}",
            "cmp qword ptr [rax + 8], 1",
            "je {slow}",
            "mov qword ptr [rax + 8], rdi",
            "add qword ptr [rcx + rsi*8], 8",
        ),
        "ret",
        ".cfi_endproc",
        parts = const page_map::ROOT_LEN,
        slow = sym S::slow,
        map = sym PAGE_MAP,
        zero = const page_map::ZERO_AT,
        offset = sym per_cpu::OFFSET,
        table = const BINS_AT,
        restarts = sym per_cpu::RESTARTS,
    )
}
