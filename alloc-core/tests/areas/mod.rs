//! rseq areas that libc does not register, and that another library may have registered first.

use std::process::Command;

/// Says which threads another library has registered: `all`, or `some`.
const FOREIGN_AREAS: &str = "STRATALLOC_TEST_FOREIGN_AREAS";

/// Runs a test of the calling file in a process whose libc registers no areas.
pub(crate) fn run_again(test: &str, foreign_areas: Option<&str>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    if let Some(threads) = foreign_areas {
        command.env(FOREIGN_AREAS, threads);
    }
    let run = command.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}

/// Whether those threads are registered by another library.
pub(crate) fn has_foreign_areas(threads: &str) -> bool {
    std::env::var_os(FOREIGN_AREAS).is_some_and(|asked| asked == threads)
}

/// Registers an area for the calling thread as another library would, if those threads are asked for; it serves to the
/// thread's end. The heap must not have been called in this thread, not from a signal handler either.
pub(crate) fn register_foreign_area(threads: &str) {
    #[repr(align(32))]
    struct Area(#[expect(dead_code, reason = "the kernel's")] [u32; 8]);
    if !has_foreign_areas(threads) || !kernel_has_areas() {
        return;
    }
    let area = Box::leak(Box::new(Area([0, u32::MAX, 0, 0, 0, 0, 0, 0])));
    // SAFETY: the area is never freed, and no sequence uses it.
    let result = unsafe { libc::syscall(libc::SYS_rseq, area, size_of::<Area>(), 0, 0x5305_3053) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Whether the kernel registers areas at all: it then minds that there is none at address 0.
pub(crate) fn kernel_has_areas() -> bool {
    const UNREGISTER: libc::c_long = 1;
    // SAFETY: nothing is registered at address 0.
    let result = unsafe { libc::syscall(libc::SYS_rseq, 0, 32, UNREGISTER, 0) };
    result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}
