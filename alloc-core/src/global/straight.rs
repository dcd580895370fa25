//! `malloc` and `free` from end to end without a miss: with the threads' bins, or, when the CPUs' caches are in use, with those.
//!
//! Which of the two is asked for nothing: each call compares its argument with a bound anyway, a size with the end of the small
//! ones, an address with the end of the page map. While the CPUs' caches are in use both bounds are 0. Every call then leaves
//! at that comparison, for a half that compares with the true bound and does the rest in one restartable sequence
//! ([`crate::front::per_cpu`]).
//!
//! The functions that programs call most are naked, with the two halves in one piece ([`define_alloc`](crate::define_alloc),
//! [`define_free`](crate::define_free)); others jump from one half to the other.

use super::{AllocSlow, FreeSlow, parts};
use crate::front::bins::Bins;
use crate::front::per_cpu;
use crate::page_map::{self, PAGE_MAP};
use crate::tls;
use core::arch::{asm, naked_asm};
use size_classes::{CLASSES, MAX_TINY};

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
            beyond = label { return alloc_shared(size, S::slow) },
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
            beyond = label { unsafe { return free_shared(block, part, page, S::slow) } },
            options(nostack, readonly)
        );
        // The bound is 0 or the length of the root.
        let class = PAGE_MAP.class_of_page(part, page);
        // The slot holds this thread's bins or a sentinel; the page map holds classes below BINS alone, and class 0, which every
        // foreign pointer has, is a bin that always misses.
        if !Bins::push(tls::slot(), class, block) {
            S::slow(block);
        }
    }
}

/// The CPU's half of an allocation: the size is in `rdi`; `$miss` is where a miss leads.
#[doc(hidden)]
#[macro_export]
macro_rules! straight_pop {
    ($name:ident, $miss:literal) => {
        concat!(
            "cmp rdi, {max}\n",
            "ja ",
            $miss,
            "\n",
            "lea r8, [rip + {map} + {descriptor}]\n",
            "movzx r9d, byte ptr [r8 + rdi + {cpus_class_of} - {descriptor}]\n",
            "mov r10, qword ptr [rip + {offset}]\n",
            $crate::straight_sequence!(
                $name,
                "mov rax, qword ptr [rax]",
                "test rax, rax",
                concat!("jz ", $miss),
                "sub qword ptr [r11 + r9*8], 8",
            ),
            "ret\n",
        )
    };
}

/// The CPU's half of a free: the block is in `rdi`, what the page map splits its address into in `rsi` and `rdx`; `$miss` is where
/// a miss leads.
#[doc(hidden)]
#[macro_export]
macro_rules! straight_push {
    ($name:ident, $miss:literal) => {
        concat!(
            "cmp rsi, {parts}\n",
            "jae ",
            $miss,
            "\n",
            "lea r8, [rip + {map} + {descriptor}]\n",
            "mov rax, qword ptr [r8 + rsi*8 - {descriptor}]\n",
            "add rdx, r8\n",
            "movzx r9d, byte ptr [rdx + rax + {zero} - {descriptor}]\n",
            "mov r10, qword ptr [rip + {offset}]\n",
            $crate::straight_sequence!(
                $name,
                "cmp qword ptr [rax], rdi",
                concat!("je ", $miss),
                "cmp qword ptr [rax + 8], 1",
                concat!("je ", $miss),
                "mov qword ptr [rax + 8], rdi",
                "add qword ptr [r11 + r9*8], 8",
            ),
            "ret\n",
        )
    };
}

/// The CPU's half of [`alloc_or`].
#[unsafe(naked)]
extern "C" fn alloc_shared(size: usize, slow: extern "C" fn(usize) -> *mut u8) -> *mut u8 {
    naked_asm!(
        ".cfi_startproc",
        crate::straight_pop!(alloc, "5f"),
        "5: jmp rsi",
        ".cfi_endproc",
        max = const parts::MAX_TINY,
        map = sym PAGE_MAP,
        descriptor = const parts::descriptor_at(crate::sequence_number!(alloc)),
        bins = const parts::BINS_AT,
        cpus_class_of = const parts::CLASS_OF_AT,
        offset = sym parts::OFFSET,
        restarts = sym parts::RESTARTS,
    )
}

/// The CPU's half of [`free_or`]; `part` and `page` are what the page map splits the address into.
///
/// # Safety
/// As for [`super::free`].
#[unsafe(naked)]
unsafe extern "C" fn free_shared(
    block: *mut u8,
    part: usize,
    page: usize,
    slow: unsafe extern "C" fn(*mut u8),
) {
    naked_asm!(
        ".cfi_startproc",
        crate::straight_push!(dealloc, "5f"),
        "5: jmp rcx",
        ".cfi_endproc",
        parts = const parts::ROOT_LEN,
        map = sym PAGE_MAP,
        descriptor = const parts::descriptor_at(crate::sequence_number!(dealloc)),
        bins = const parts::BINS_AT,
        zero = const parts::ZERO_AT,
        offset = sym parts::OFFSET,
        restarts = sym parts::RESTARTS,
    )
}

/// Defines a function that is [`alloc_or`] with both halves in one piece.
#[doc(hidden)]
#[macro_export]
macro_rules! define_alloc {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $result:ty, $slow:ty) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        $visibility unsafe extern "C" fn $name(size: usize) -> $result {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "cmp rdi, qword ptr [rip + {bounds}]",
                "jae 5f",
                "lea rax, [rip + {class_of}]",
                "movzx ecx, byte ptr [rax + rdi]",
                concat!("mov rdx, qword ptr [rip + ", $crate::tls_symbol!(), "@GOTTPOFF]"),
                "mov rdx, qword ptr fs:[rdx]",
                "mov rax, qword ptr [rdx + rcx*8]",
                "mov rax, qword ptr [rax]",
                "test rax, rax",
                "jz {slow}",
                "sub qword ptr [rdx + rcx*8], 8",
                "ret",
                "5:",
                $crate::straight_pop!($name, "{slow}"),
                ".cfi_endproc",
                bounds = sym $crate::global::parts::BOUNDS,
                class_of = sym $crate::global::parts::CLASS_OF,
                slow = sym <$slow as $crate::global::AllocSlow>::slow,
                max = const $crate::global::parts::MAX_TINY,
                map = sym $crate::global::parts::PAGE_MAP,
                descriptor = const $crate::global::parts::descriptor_at($crate::sequence_number!($name)),
                bins = const $crate::global::parts::BINS_AT,
                cpus_class_of = const $crate::global::parts::CLASS_OF_AT,
                offset = sym $crate::global::parts::OFFSET,
                restarts = sym $crate::global::parts::RESTARTS,
            )
        }
    };
}

/// Defines a function that is [`free_or`] with both halves in one piece.
#[doc(hidden)]
#[macro_export]
macro_rules! define_free {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident, $slow:ty) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        $visibility unsafe extern "C" fn $name(block: *mut ::core::ffi::c_void) {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rsi, rdi",
                "shr rsi, {page_shift}",
                "movzx edx, si",
                "shr rsi, {part_shift}",
                "cmp rsi, qword ptr [rip + {bounds} + 8]",
                "jae 5f",
                "lea rcx, [rip + {map}]",
                "mov rax, qword ptr [rcx + rsi*8]",
                "add rdx, rcx",
                "movzx ecx, byte ptr [rdx + rax + {zero}]",
                concat!("mov rdx, qword ptr [rip + ", $crate::tls_symbol!(), "@GOTTPOFF]"),
                "mov rdx, qword ptr fs:[rdx]",
                "mov rax, qword ptr [rdx + rcx*8]",
                "cmp qword ptr [rax], rdi",
                "je {slow}",
                "cmp qword ptr [rax + 8], 1",
                "je {slow}",
                "mov qword ptr [rax + 8], rdi",
                "add qword ptr [rdx + rcx*8], 8",
                "ret",
                "5:",
                $crate::straight_push!($name, "{slow}"),
                ".cfi_endproc",
                page_shift = const $crate::global::parts::PAGE_SHIFT,
                part_shift = const $crate::global::parts::LEAF_SHIFT - $crate::global::parts::PAGE_SHIFT,
                bounds = sym $crate::global::parts::BOUNDS,
                slow = sym <$slow as $crate::global::FreeSlow>::slow,
                parts = const $crate::global::parts::ROOT_LEN,
                map = sym $crate::global::parts::PAGE_MAP,
                descriptor = const $crate::global::parts::descriptor_at($crate::sequence_number!($name)),
                bins = const $crate::global::parts::BINS_AT,
                zero = const $crate::global::parts::ZERO_AT,
                offset = sym $crate::global::parts::OFFSET,
                restarts = sym $crate::global::parts::RESTARTS,
            )
        }
    };
}
