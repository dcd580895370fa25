//! `operator delete`.
//!
//! Sizes and alignments that a program states are not trusted: programs that state them wrongly have run well on other
//! allocators.

use crate::interposed::forwards;
use crate::malloc::{Free, release};
use core::ffi::c_void;

alloc_core::define_free!(
    /// `operator delete(void *)`.
    ///
    /// # Safety
    /// As for `free`.
    #[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZdlPv"))]
    pub fn delete, Free
);

/// `operator delete(void *, align_val_t)`.
///
/// # Safety
/// As for `free`.
#[cfg_attr(all(preload, not(archive)), unsafe(export_name = "_ZdlPvSt11align_val_t"))]
pub unsafe extern "C" fn delete_aligned(ptr: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { release(ptr) }
}

forwards!(
    /// `operator delete[](void *)`.
    if all(preload, not(archive)), delete_array, "_ZdaPv", "_ZdlPv", delete
);
forwards!(
    /// `operator delete(void *, size_t)`.
    if all(preload, not(archive)), delete_sized, "_ZdlPvm", "_ZdlPv", delete
);
forwards!(
    /// `operator delete[](void *, size_t)`.
    if all(preload, not(archive)), delete_array_sized, "_ZdaPvm", "_ZdaPv", delete_array
);
forwards!(
    /// `operator delete(void *, const nothrow_t &)`.
    if all(preload, not(archive)), delete_nothrow, "_ZdlPvRKSt9nothrow_t", "_ZdlPv", delete
);
forwards!(
    /// `operator delete[](void *, const nothrow_t &)`.
    if all(preload, not(archive)), delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", "_ZdaPv", delete_array
);
forwards!(
    /// `operator delete[](void *, align_val_t)`.
    if all(preload, not(archive)), delete_array_aligned, "_ZdaPvSt11align_val_t", "_ZdlPvSt11align_val_t", delete_aligned
);
forwards!(
    /// `operator delete[](void *, align_val_t, const nothrow_t &)`.
    if all(preload, not(archive)), delete_array_aligned_nothrow,
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_t",
    delete_array_aligned
);
forwards!(
    /// `operator delete(void *, align_val_t, const nothrow_t &)`.
    if all(preload, not(archive)), delete_aligned_nothrow,
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    delete_aligned
);

/// Defines a sized form of an aligned delete: the alignment takes the size's place among the arguments.
macro_rules! drops_size {
    ($(#[$doc:meta])* $name:ident, $export:literal, $symbol:literal, $ours:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As in C++.
        #[cfg_attr(all(preload, not(archive)), unsafe(export_name = $export))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(all(preload, not(archive), target_arch = "x86_64"))]
            core::arch::naked_asm!("mov rsi, rdx", concat!("jmp qword ptr [rip + ", $symbol, "@GOTPCREL]"));
            #[cfg(all(preload, not(archive), target_arch = "aarch64"))]
            core::arch::naked_asm!(
                "mov x1, x2",
                concat!("adrp x16, :got:", $symbol),
                concat!("ldr x16, [x16, :got_lo12:", $symbol, "]"),
                "br x16",
            );
            #[cfg(all(any(not(preload), archive), target_arch = "x86_64"))]
            core::arch::naked_asm!("mov rsi, rdx", "jmp {ours}", ours = sym $ours);
            #[cfg(all(any(not(preload), archive), target_arch = "aarch64"))]
            core::arch::naked_asm!("mov x1, x2", "b {ours}", ours = sym $ours);
        }
    };
}

drops_size!(
    /// `operator delete(void *, size_t, align_val_t)`.
    delete_sized_aligned, "_ZdlPvmSt11align_val_t", "_ZdlPvSt11align_val_t", delete_aligned
);
drops_size!(
    /// `operator delete[](void *, size_t, align_val_t)`.
    delete_array_sized_aligned,
    "_ZdaPvmSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    delete_array_aligned
);
