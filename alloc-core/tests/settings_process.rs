//! What reading the settings does to a process: its lines on standard error, and its end under `abort_conf`.
#![cfg(not(miri))]

use alloc_core::settings::{Chain, Settings};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::ptr;

/// Reads the settings from `variables` in a forked child, whose exit code is the verdict of `check`.
///
/// Returns the child's wait status and what it wrote to standard error.
fn in_child(variables: &[&str], secure: bool, check: fn(&Settings) -> bool) -> (i32, String) {
    let owned: Vec<CString> = variables.iter().map(|v| CString::new(*v).unwrap()).collect();
    let mut environment: Vec<_> = owned.iter().map(|v| v.as_ptr()).collect();
    environment.push(ptr::null());
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child makes no calls but those of the code under test, which allocates nothing, and of the kernel.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above; the environment is a vector of C strings that ends with null.
        unsafe {
            libc::dup2(ends[1], 2);
            let settings = Settings::from_environment(environment.as_ptr(), secure);
            libc::_exit(if check(&settings) { 0 } else { 1 });
        }
    }
    // SAFETY: both descriptors are open and owned here; the child is ours.
    unsafe {
        libc::close(ends[1]);
        let mut text = String::new();
        File::from_raw_fd(ends[0]).read_to_string(&mut text).unwrap();
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        (status, text)
    }
}

#[test]
fn a_bad_setting_costs_one_line() {
    let (status, text) = in_child(&["STRATALLOC_CONF=bakend:huge,check:full"], false, |s| {
        s.backend == Chain::SMALL && s.check.as_str() == "full"
    });
    assert_eq!(status, 0);
    assert_eq!(
        text,
        "stratalloc: STRATALLOC_CONF: column 1: unknown key \"bakend\"; did you mean \"backend\"? (ignored)\n"
    );
}

#[test]
fn abort_conf_aborts_only_when_something_is_bad() {
    let (status, text) = in_child(&["STRATALLOC_CONF=abort_conf:true,nonsense:1"], false, |_| true);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status}");
    assert_eq!(text.lines().count(), 2);
    assert!(text.ends_with("aborting\n"), "{text}");
    // A key of another allocator is not bad.
    let (status, text) = in_child(&["MALLOC_CONF=abort_conf:true,narenas:4"], false, |s| s.abort_conf);
    assert_eq!((status, text.as_str()), (0, ""));
}

#[test]
fn confirm_conf_prints_every_value_with_its_origin() {
    let variables = [
        "TCMALLOC_RELEASE_RATE=10",
        "MALLOC_CONF=confirm_conf:true,percpu_cache:1,narenas:2,programs:no-such-program,backend:huge",
    ];
    let (status, text) = in_child(&variables, false, |s| s.excluded);
    assert_eq!(status, 0);
    for line in [
        "stratalloc: conf release_delay:100ms (TCMALLOC_RELEASE_RATE)\n",
        "stratalloc: conf percpu_cache:true (MALLOC_CONF); where the kernel and libc have restartable sequences, per-thread caches elsewhere\n",
        "stratalloc: conf backend:4k (MALLOC_CONF); plain 4k because `programs` does not name this executable\n",
        "stratalloc: conf check:off (default)\n",
        "stratalloc: MALLOC_CONF: column 34: \"narenas\" is accepted and has no effect here\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(text.lines().count(), alloc_core::settings::Key::COUNT + 1);
}

#[test]
fn this_very_executable_is_found_by_name() {
    let name = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_string();
    let variable = format!("STRATALLOC_CONF=programs:x|{name},backend:huge");
    let (status, text) = in_child(&[&variable], false, |s| !s.excluded && s.backend != Chain::SMALL);
    assert_eq!((status, text.as_str()), (0, ""));
}

#[test]
fn a_secure_process_reads_and_prints_nothing() {
    let variables = ["STRATALLOC_CONF=abort_conf:true,confirm_conf:true,nonsense:1"];
    let (status, text) = in_child(&variables, true, |s| *s == Settings::DEFAULT);
    assert_eq!((status, text.as_str()), (0, ""));
}
