//! The documents of the project that packages contain. Most of their links lead to files of the source tree,
//! which packages lack, so packages get only the text of such links. `cargo xtask lint` checks that this text
//! is a path of the source tree.

use anyhow::Context;
use std::fs;
use std::path::Path;
use unisono_host_tests::program::workspace;

pub(super) const CHANGELOG: &str = "CHANGELOG.md";
/// The description of the wheel.
pub(super) const PYTHON_README: &str = "python/README.md";
/// The commands that need root, and the bounds between users.
pub(super) const SECURITY: &str = "SECURITY.md";
pub(crate) const PACKAGED_DOCUMENTS: [&str; 3] = [CHANGELOG, PYTHON_README, SECURITY];

/// Returns the text of a document as packages contain it.
pub(super) fn packaged(document: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(workspace().join(document)).with_context(|| document.to_owned())?;
    Ok(without_links_to_files(&text))
}

/// Writes documents, as packages contain them, into a directory, which is made if it is missing.
pub(super) fn write_packaged(documents: &[&str], directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for document in documents {
        let path = directory.join(document);
        fs::write(&path, packaged(document)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Replaces `[text](place)` by `text`, unless the place is on the network or in the same document.
fn without_links_to_files(text: &str) -> String {
    let mut packaged = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (Some((front, words)), Some((target, behind))) = (before.rsplit_once('['), after.split_once(')'))
        else {
            packaged.push_str(before);
            packaged.push_str("](");
            rest = after;
            continue;
        };
        if target.contains("://") || target.starts_with('#') {
            packaged.push_str(&format!("{before}]({target})"));
        } else {
            packaged.push_str(front);
            packaged.push_str(words);
        }
        rest = behind;
    }
    packaged + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_become_text_and_others_stay() {
        let text =
            "`[[allow]]`, [docs/a.md](docs/a.md#b) and [the site](https://example.org), [below](#c): x](y";
        assert_eq!(
            without_links_to_files(text),
            "`[[allow]]`, docs/a.md and [the site](https://example.org), [below](#c): x](y"
        );
    }

    #[test]
    fn packaged_documents_have_no_link_to_a_file_that_packages_lack() {
        for document in PACKAGED_DOCUMENTS {
            let text = packaged(document).expect("it is there");
            let targets = text.split("](").skip(1);
            for target in targets.filter(|target| !target.starts_with('#')) {
                assert!(target.starts_with("https://"), "{document}: ]({target:.80}");
            }
        }
    }
}
