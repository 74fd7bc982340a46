//! Gives `libunisono.so` the name by which the dynamic linker knows it, if it is built to be installed.
//! A library in the source tree has none, so that programs find it under its file's name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=UNISONO_SONAME");
    if let Ok(name) = std::env::var("UNISONO_SONAME") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}");
    }
}
