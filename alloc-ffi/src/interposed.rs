//! Calls of our own exported functions by way of the loader's table, as any other library calls them.
//!
//! Functions that the C library or the C++ standard defines in terms of another (`reallocarray`, array and sized
//! operators) must reach the program's version of that other one, if it has its own.

/// Defines a function that is nothing but another one, whose symbol the program may have taken over. Arguments stay where
/// they are.
macro_rules! forwards {
    ($(#[$doc:meta])* if $exported:meta, $name:ident, $export:literal, $symbol:literal, $ours:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the other function.
        #[cfg_attr($exported, unsafe(export_name = $export))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(all(preload, not(archive), target_arch = "x86_64"))]
            core::arch::naked_asm!(concat!("jmp qword ptr [rip + ", $symbol, "@GOTPCREL]"));
            #[cfg(all(preload, not(archive), target_arch = "aarch64"))]
            core::arch::naked_asm!(
                concat!("adrp x16, :got:", $symbol),
                concat!("ldr x16, [x16, :got_lo12:", $symbol, "]"),
                "br x16",
            );
            // Without exported names nobody can replace anything.
            #[cfg(all(any(not(preload), archive), target_arch = "x86_64"))]
            core::arch::naked_asm!("jmp {ours}", ours = sym $ours);
            #[cfg(all(any(not(preload), archive), target_arch = "aarch64"))]
            core::arch::naked_asm!("b {ours}", ours = sym $ours);
        }
    };
}
pub(crate) use forwards;

/// The address that a symbol of ours is bound to: ours or another's.
#[cfg(all(preload, not(archive)))]
macro_rules! bound_to {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: loads a word of the library's own table, which the loader has filled.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                concat!("adrp {0}, :got:", $symbol),
                concat!("ldr {0}, [{0}, :got_lo12:", $symbol, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}
#[cfg(all(preload, not(archive)))]
pub(crate) use bound_to;

/// Whether an address lies in this library.
pub(crate) fn is_ours(address: usize) -> bool {
    unsafe extern "C" {
        /// Made by the linker: the library's first byte and the byte behind its last.
        static __ehdr_start: u8;
        static _end: u8;
    }
    (&raw const __ehdr_start).addr() <= address && address < (&raw const _end).addr()
}
