//! Sets the cfg by which `src/sync.rs` takes shuttle's threads, for this package alone.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=shuttle");
}
