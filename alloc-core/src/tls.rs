//! The thread's own two words: the front-end slot and, for debug checks, the ranks of the locks it holds.
//!
//! They live in initial-exec thread-local storage, which costs two instructions to read, needs no
//! initialisation call and is there before any constructor has run. `thread_local!` in a shared library
//! would call `__tls_get_addr`, which may itself allocate (the glibc manual, "Replacing malloc", asks for
//! initial-exec). The slot starts as the address of the always-miss sentinel, so no caller tests for null.

#[cfg(not(miri))]
pub(crate) use native::{held_ranks, identity, set_held_ranks, set_slot, slot};
#[cfg(miri)]
pub(crate) use portable::{held_ranks, identity, set_held_ranks, set_slot, slot};

/// The symbol of the two words, with this crate's version in it, so that two versions in one program do not share it.
#[doc(hidden)]
#[macro_export]
macro_rules! tls_symbol {
    () => {
        concat!(
            "stratalloc_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH"),
            "_tls"
        )
    };
}

#[cfg(not(miri))]
mod native {
    use crate::front::bins::Bins;
    use core::arch::{asm, global_asm};

    #[cfg(target_arch = "x86_64")]
    macro_rules! tls_type {
        () => {
            "@object"
        };
    }
    #[cfg(target_arch = "aarch64")]
    macro_rules! tls_type {
        () => {
            "%object"
        };
    }

    global_asm!(
        ".section .tdata,\"awT\",@progbits",
        ".balign 16",
        concat!(".globl ", crate::tls_symbol!()),
        concat!(".hidden ", crate::tls_symbol!()),
        concat!(".type ", crate::tls_symbol!(), ",", tls_type!()),
        concat!(".size ", crate::tls_symbol!(), ", 16"),
        concat!(crate::tls_symbol!(), ":"),
        ".quad {sentinel}",
        ".quad 0",
        ".text",
        sentinel = sym crate::front::bins::SENTINELS,
    );

    /// The address of this thread's two words.
    #[inline(always)]
    fn words() -> *mut usize {
        let address: *mut usize;
        // SAFETY: reads the thread pointer and a link-time offset; no memory is written.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                concat!("mov {0}, qword ptr [rip + ", crate::tls_symbol!(), "@GOTTPOFF]"),
                "add {0}, qword ptr fs:[0]",
                out(reg) address,
                options(nostack, readonly)
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "mrs {1}, tpidr_el0",
                concat!("adrp {0}, :gottprel:", crate::tls_symbol!()),
                concat!("ldr {0}, [{0}, :gottprel_lo12:", crate::tls_symbol!(), "]"),
                "add {0}, {0}, {1}",
                out(reg) address,
                out(reg) _,
                options(nostack, readonly, preserves_flags)
            );
        }
        address
    }

    /// The front end of this thread: a thread cache, or one of the sentinels.
    #[inline(always)]
    pub(crate) fn slot() -> *mut Bins {
        #[cfg(target_arch = "x86_64")]
        {
            let bins: *mut Bins;
            // SAFETY: reads this thread's own word, which always holds a valid address.
            unsafe {
                asm!(
                    concat!("mov {0}, qword ptr [rip + ", crate::tls_symbol!(), "@GOTTPOFF]"),
                    "mov {0}, qword ptr fs:[{0}]",
                    out(reg) bins,
                    options(nostack, readonly, preserves_flags)
                );
            }
            bins
        }
        // SAFETY: the thread's own word, always initialised.
        #[cfg(not(target_arch = "x86_64"))]
        unsafe {
            words().cast::<*mut Bins>().read_volatile()
        }
    }

    /// Changes the front end of this thread.
    #[inline]
    pub(crate) fn set_slot(bins: *mut Bins) {
        // SAFETY: the thread's own word; a signal handler on this thread sees the old or the new value.
        unsafe { words().cast::<*mut Bins>().write_volatile(bins) }
    }

    /// A number that tells this thread from all others alive, and that a forked child keeps.
    pub(crate) fn identity() -> usize {
        words().addr()
    }

    /// Bit set of the ranks of the locks that this thread holds; kept in debug builds alone.
    pub(crate) fn held_ranks() -> usize {
        // SAFETY: the thread's own word.
        unsafe { words().add(1).read_volatile() }
    }

    /// Replaces the bit set of held ranks.
    pub(crate) fn set_held_ranks(ranks: usize) {
        // SAFETY: the thread's own word.
        unsafe { words().add(1).write_volatile(ranks) }
    }
}

/// Miri interprets no assembler.
#[cfg(miri)]
mod portable {
    extern crate std;
    use crate::front::bins::{Bins, sentinel_empty};
    use core::cell::Cell;

    std::thread_local! {
        static SLOT: Cell<*mut Bins> = Cell::new(sentinel_empty());
        static RANKS: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn slot() -> *mut Bins {
        SLOT.get()
    }
    pub(crate) fn set_slot(bins: *mut Bins) {
        SLOT.set(bins);
    }
    pub(crate) fn identity() -> usize {
        SLOT.with(|slot| core::ptr::from_ref(slot).addr())
    }
    pub(crate) fn held_ranks() -> usize {
        RANKS.get()
    }
    pub(crate) fn set_held_ranks(ranks: usize) {
        RANKS.set(ranks);
    }
}
