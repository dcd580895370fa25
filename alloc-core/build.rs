//! Present because `links` needs a build script: two versions of this crate in one program would share a
//! thread-local slot in silence, and `links` makes cargo refuse them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
