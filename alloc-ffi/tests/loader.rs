//! The dynamic linker, constructors, exit: the moments at which allocators are called and not ready. Named after the hazard.

mod common;

use common::{library, run, same_as_glibc, source};

#[test]
fn first_call_comes_before_constructors() {
    same_as_glibc(&source("c/before_constructors.c").program(), &[]);
}

#[test]
fn first_call_is_free_of_null() {
    same_as_glibc(&source("c/free_first.c").program(), &[]);
}

#[test]
fn libc_allocates_with_its_exit_lock_held() {
    same_as_glibc(&source("c/atexit_many.c").program(), &[]);
}

#[test]
fn program_brings_part_of_its_own_malloc() {
    same_as_glibc(&source("c/own_malloc.c").program(), &[]);
}

#[test]
fn deepbind_module_passes_libcs_blocks() {
    let module = source("c/deepbind_module.c").module();
    same_as_glibc(&source("c/deepbind.c").program(), &[module.to_str().unwrap()]);
}

#[test]
fn modules_come_and_go_under_threads() {
    let module = source("c/keyed_module.c").module();
    same_as_glibc(&source("c/dlclose_loop.c").program(), &[module.to_str().unwrap()]);
}

#[test]
fn late_dlopen_finds_no_static_tls() {
    let program = source("c/late_dlopen.c").program();
    let run = run(&program, &[library().to_str().unwrap()], &[]);
    assert_eq!((run.out.as_str(), run.err.as_str()), ("done\n", ""), "{run:?}");
    assert!(run.status.success(), "{run:?}");
}

#[test]
fn interposed_mmap_calls_dlsym() {
    let interposer = source("c/mmap_interposer.c").module();
    for program in ["c/shadow.c", "c/before_constructors.c", "c/atexit_many.c", "c/thread_ends.c"] {
        let program = source(program).program();
        let args = ["2000"];
        let plain = run(&program, &args, &[]);
        for order in [[library(), &interposer], [&interposer, library()]] {
            assert_eq!(run(&program, &args, &order), plain, "{order:?}");
        }
    }
}

#[test]
fn plugin_brings_cxx_into_a_c_host() {
    let plugin = source("cxx/plugin.cpp").module();
    same_as_glibc(&source("c/plugin_host.c").program(), &[plugin.to_str().unwrap()]);
}
