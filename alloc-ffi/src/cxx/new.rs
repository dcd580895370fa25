//! `operator new`.
//!
//! A form is, as `malloc`, its own fast path. When that misses it jumps to a naked function which tries in earnest,
//! and if there is no memory jumps on to the same operator of the C++ runtime: that one runs the new handler, throws, or
//! returns null as the standard says. At that moment no frame of ours is on the stack, so nothing of Rust is ever
//! unwound, and no lock is held.

use super::replaced;
use crate::interposed::forwards;
use crate::symbols::{self, Scope};
use alloc_core::global;
use alloc_core::message::Message;
use core::ffi::{CStr, c_void};
use core::ptr;

/// The C++ runtimes that define the operators.
const RUNTIMES: Scope = Scope::Sonames(&[b"libstdc++.so.", b"libc++abi.so.", b"libc++.so."]);

/// Bits of the forms that have code of their own.
const NOTHROW: usize = 1;
const ALIGNED: usize = 2;
const ARRAY: usize = 4;

/// The linker names of the forms, by their bits.
const NAMES: [&CStr; 8] = [
    c"_Znwm",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_Znam",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnamSt11align_val_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
];

/// A block, or else what to jump to.
#[repr(C)]
struct Attempt {
    block: *mut u8,
    next: *const c_void,
}

/// Tries to allocate; if there is no memory finds the C++ runtime's operator of the same form.
///
/// `align` is the second argument of the operator, whatever that is in this form.
extern "C" fn attempt(size: usize, align: usize, form: usize) -> Attempt {
    let block = if form & NOTHROW != 0 && replaced::any() {
        // The runtime's nothrow form calls the throwing one, which is the program's.
        ptr::null_mut()
    } else if form & ALIGNED == 0 {
        global::alloc_slow(size)
    } else if align.is_power_of_two() {
        global::alloc_aligned(align, size)
    } else {
        // The runtime's operator knows what to do.
        ptr::null_mut()
    };
    if !block.is_null() {
        return Attempt { block, next: ptr::null() };
    }
    let mut next = symbols::find(NAMES[form & 7], RUNTIMES);
    if next.is_null() {
        let end: extern "C" fn(usize) -> *mut u8 = if form & NOTHROW == 0 { no_runtime } else { no_block };
        next = end as *const c_void;
    }
    Attempt { block, next }
}

/// The end of a throwing form in a process without a C++ runtime that could throw.
extern "C" fn no_runtime(size: usize) -> *mut u8 {
    Message::new()
        .str("operator new: no memory for ")
        .dec(size as u64)
        .str(" bytes, and no C++ runtime to throw bad_alloc: aborting")
        .send();
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

/// The end of a nothrow form in a process without a C++ runtime, hence without a new handler.
extern "C" fn no_block(_size: usize) -> *mut u8 {
    ptr::null_mut()
}

/// Defines the naked half of a form: tries, and returns or jumps on with all arguments as they came. Arguments
/// that a form has not are never looked at.
macro_rules! naked_half {
    ($(#[$attribute:meta])* $visibility:vis $name:ident, $form:expr) => {
        $(#[$attribute])*
        ///
        /// # Safety
        /// As in C++.
        #[unsafe(naked)]
        $visibility unsafe extern "C" fn $name(size: usize, second: usize, third: usize) -> *mut u8 {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "mov edx, {form}",
                "call {attempt}",
                "mov r11, rdx",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "jz 2f",
                "ret",
                "2: jmp r11",
                ".cfi_endproc",
                form = const $form,
                attempt = sym attempt,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset x29, -48",
                ".cfi_offset x30, -40",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov w2, #{form}",
                "bl {attempt}",
                "cbz x0, 2f",
                "ldp x29, x30, [sp], #48",
                "ret",
                "2: mov x16, x1",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "br x16",
                ".cfi_endproc",
                form = const $form,
                attempt = sym attempt,
            );
        }
    };
}

naked_half!(
    /// Behind [`new`].
    #[cold]
    new_slow,
    0
);
naked_half!(
    /// Behind [`new_nothrow`].
    #[cold]
    new_nothrow_slow,
    NOTHROW
);
naked_half!(
    /// Behind [`new_array_nothrow`].
    #[cold]
    new_array_nothrow_slow,
    ARRAY | NOTHROW
);

// The aligned forms have no fast path, so the naked half is all there is of them.
naked_half!(
    /// `operator new(size_t, align_val_t)`.
    #[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZnwmSt11align_val_t"))]
    pub new_aligned,
    ALIGNED
);
naked_half!(
    /// `operator new(size_t, align_val_t, const nothrow_t &)`.
    #[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZnwmSt11align_val_tRKSt9nothrow_t"))]
    pub new_aligned_nothrow,
    ALIGNED | NOTHROW
);
naked_half!(
    /// `operator new[](size_t, align_val_t, const nothrow_t &)`.
    #[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZnamSt11align_val_tRKSt9nothrow_t"))]
    pub new_array_aligned_nothrow,
    ARRAY | ALIGNED | NOTHROW
);

alloc_core::define_alloc!(
    /// `operator new(size_t)`.
    ///
    /// What it misses goes on by a jump; a test looks at the stack from within a new handler.
    ///
    /// # Safety
    /// As in C++.
    #[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_Znwm"))]
    pub fn new() -> *mut u8, New
);

/// The cold half of [`new`].
struct New;

impl global::AllocSlow for New {
    #[inline(never)]
    extern "C" fn slow(size: usize) -> *mut u8 {
        // SAFETY: the naked half gets what we got.
        unsafe { new_slow(size, 0, 0) }
    }
}

forwards!(
    /// `operator new[](size_t)`.
    if all(preload, not(archive)), new_array, "_Znam", "_Znwm", new
);
forwards!(
    /// `operator new[](size_t, align_val_t)`.
    if all(preload, not(archive)), new_array_aligned, "_ZnamSt11align_val_t", "_ZnwmSt11align_val_t", new_aligned
);

/// The `const nothrow_t &` of calls that the fast path has dropped it from: an object without content.
static TAG: u8 = 0;

/// The cold half of [`new_nothrow`].
struct NewNothrow;

impl global::AllocSlow for NewNothrow {
    #[cold]
    #[inline(never)]
    extern "C" fn slow(size: usize) -> *mut u8 {
        // SAFETY: the naked half gets what we got.
        unsafe { new_nothrow_slow(size, (&raw const TAG).addr(), 0) }
    }
}

/// The cold half of [`new_array_nothrow`].
struct NewArrayNothrow;

impl global::AllocSlow for NewArrayNothrow {
    #[cold]
    #[inline(never)]
    extern "C" fn slow(size: usize) -> *mut u8 {
        // SAFETY: the naked half gets what we got.
        unsafe { new_array_nothrow_slow(size, (&raw const TAG).addr(), 0) }
    }
}

/// `operator new(size_t, const nothrow_t &)`.
///
/// # Safety
/// As in C++.
#[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZnwmRKSt9nothrow_t"))]
pub unsafe extern "C" fn new_nothrow(size: usize, tag: usize) -> *mut u8 {
    if replaced::surely_ours() {
        return global::alloc_or::<NewNothrow>(size);
    }
    // SAFETY: the naked half gets what we got.
    unsafe { new_nothrow_slow(size, tag, 0) }
}

/// `operator new[](size_t, const nothrow_t &)`.
///
/// # Safety
/// As in C++.
#[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZnamRKSt9nothrow_t"))]
pub unsafe extern "C" fn new_array_nothrow(size: usize, tag: usize) -> *mut u8 {
    if replaced::surely_ours() {
        return global::alloc_or::<NewArrayNothrow>(size);
    }
    // SAFETY: the naked half gets what we got.
    unsafe { new_array_nothrow_slow(size, tag, 0) }
}
