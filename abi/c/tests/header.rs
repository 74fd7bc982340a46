//! Checks that the C headers match the sources.

use cbindgen::{Builder, Config};
use std::path::Path;

/// Compares a header with cbindgen's output for the sources, or writes it if `UPDATE_HEADER` is set.
fn is_what_the_sources_say(config: &str, header: &str, sources: impl FnOnce(Builder) -> Builder) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(here.join(config)).expect("it is a configuration of cbindgen");
    let made = sources(Builder::new().with_config(config)).generate().expect("cbindgen reads the sources");
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
    let header = here.join(header);
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&header, &text).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == text,
        "{} is not what the sources say; run: UPDATE_HEADER=1 cargo test -p unisono-c --test c header",
        header.display()
    );
}

#[test]
fn the_header_for_c_is_what_cbindgen_makes_of_the_sources() {
    is_what_the_sources_say("cbindgen.toml", "include/unisono.h", |made| {
        made.with_crate(env!("CARGO_MANIFEST_DIR"))
    });
}

#[test]
fn the_header_for_the_mpi_shim_is_what_cbindgen_makes_of_the_sources() {
    is_what_the_sources_say("cbindgen_mpi.toml", "../mpi/shim/unisono_mpi.h", |made| {
        made.with_src(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mpi/mod.rs"))
    });
}
