/// Returns a digest of the headers through which the MPI shim calls `libunisono.so`. `abi` is the directory
/// of both. Part of two build scripts: the preload compares its digest with the digest of the library that it
/// opens.
fn interface(abi: &std::path::Path) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for header in ["c/include/unisono.h", "mpi/shim/unisono_mpi.h"] {
        let header = abi.join(header);
        println!("cargo:rerun-if-changed={}", header.display());
        std::fs::read(&header).expect("a header of the workspace").hash(&mut hasher);
    }
    hasher.finish()
}
