//! Gives `libunisono.so` the name by which the dynamic linker knows it, and puts a link of that name beside
//! it: programs find the library in the source tree and in an installed one under the same name. Also passes
//! the digest of the headers to the sources, by which the MPI preload recognizes a library of another build.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// The library's name for the dynamic linker. Its number grows with every release that breaks programs.
const SONAME: &str = "libunisono.so.0";

include!("../mpi/interface.rs");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=UNISONO_MPI_INTERFACE={:x}", interface(&PathBuf::from("..")));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // OUT_DIR is PROFILE/build/PACKAGE-HASH/out; the library becomes PROFILE/libunisono.so, and the library
    // of the tests PROFILE/deps/libunisono.so
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let profile = out.ancestors().nth(3).expect("cargo's folders");
    for folder in [profile.to_owned(), profile.join("deps")] {
        let link = folder.join(SONAME);
        let _ = fs::remove_file(&link); // a link of an earlier build
        symlink("libunisono.so", &link)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", link.display()));
    }
}
