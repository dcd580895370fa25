//! C++'s operators new and delete, in all their forms.
//!
//! A program may replace any of them. The standard's own array, sized and nothrow forms therefore go through the plain
//! forms, whoever defines those, and so do ours: by a jump through the loader's table, or, where the form has a fast path
//! of its own, after a look whether the plain forms are ours.

mod delete;
mod new;
mod replaced;

pub use delete::*;
pub use new::*;

/// Defines a form that is nothing but another form, whose symbol the program may have taken over.
macro_rules! forwards {
    ($(#[$doc:meta])* $name:ident, $export:literal, $symbol:literal, $ours:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As in C++.
        #[cfg_attr(all(preload, not(archive)), unsafe(export_name = $export))]
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
use forwards;
