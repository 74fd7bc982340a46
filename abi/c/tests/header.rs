//! The header that C compiles is the one that the sources say.

use std::path::Path;

#[test]
fn the_header_is_what_cbindgen_makes_of_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml is one");
    let made = cbindgen::Builder::new()
        .with_crate(here)
        .with_config(config)
        .generate()
        .expect("cbindgen reads the sources");
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
    let header = here.join("include/unisono.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&header, &text).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == text,
        "include/unisono.h is not what the sources say; run: UPDATE_HEADER=1 cargo test -p unisono-c --test header"
    );
}
