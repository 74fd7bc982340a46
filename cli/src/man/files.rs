//! The manual pages of files (section 5). Their text comes from the documentation, or from the module comment
//! of the source that reads the file.

use super::markdown;
use std::path::{Path, PathBuf};

/// A page of section 5.
pub(super) struct FilePage {
    /// The name of the page after `unisono-`.
    pub(super) name: &'static str,
    about: &'static str,
    /// The document, or the source whose module comment describes the file.
    text: &'static str,
    /// The page's text begins after the first line that starts with `from`, and ends before the next line
    /// that starts with `until`.
    from: &'static str,
    until: &'static str,
    see_also: &'static str,
}

pub(super) const PAGES: &[FilePage] = &[
    FilePage {
        name: "policy",
        about: "shares of a link, of a disk or of processors (TOML)",
        text: include_str!("../../../docs/shares.md"),
        from: "# Shares of a link",
        until: "## Where a policy is enforced",
        see_also: "unisono-queue-apply(1), unisono-queue-cpu(1), unisono-queue-disk(1), unisono-queue-guard(1), unisono-queue-broker(1)",
    },
    FilePage {
        name: "gang-rules",
        about: "which programs and control groups the gang daemon makes gangs (TOML)",
        text: include_str!("../../../docs/gangs-as-a-service.md"),
        from: "**By rules.**",
        until: "**At every boot.**",
        see_also: "unisono-gang-daemon(1), unisono-gang-install(1)",
    },
    FilePage {
        name: "topology",
        about: "a network of switches and its groups (btin-topo-1, JSON)",
        text: include_str!("../../../crates/btin/src/format/topology.rs"),
        from: "//!",
        until: "use ",
        see_also: "unisono-tree-generate(1), unisono-tree-convert(1), unisono-tree-plan(1)",
    },
    FilePage {
        name: "study-file",
        about: "a study: what runs, how often, and what is compared (TOML)",
        text: include_str!("../../../crates/study/src/file/mod.rs"),
        from: "//!",
        until: "mod ",
        see_also: "unisono-study(1), unisono-report(1)",
    },
];

impl FilePage {
    /// Finds the page of this name, with or without `unisono-` and `.5`.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        let name = name.strip_prefix("unisono-").unwrap_or(name);
        let name = name.strip_suffix(".5").unwrap_or(name);
        PAGES.iter().find(|page| page.name == name)
    }

    pub(super) fn path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("unisono-{}.5", self.name))
    }

    pub(super) fn roff(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(
            ".TH unisono-{0} 5 \"\" \"unisono {version}\"\n.SH NAME\nunisono\\-{0} \\- {1}\n.SH DESCRIPTION\n{2}.SH \"SEE ALSO\"\n{3}\n",
            markdown::escaped(self.name),
            markdown::escaped(self.about),
            markdown::roff(&self.markdown()),
            markdown::escaped(self.see_also),
        )
    }

    /// Returns the part of the document that describes the file, as Markdown.
    fn markdown(&self) -> String {
        let begins = |line: &&str| !line.starts_with(self.from);
        let part = self.text.lines().skip_while(begins).take_while(|line| !line.starts_with(self.until));
        let lines = part.map(|line| match line.strip_prefix("//!") {
            Some(comment) => comment.strip_prefix(' ').unwrap_or(comment),
            None => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_says_what_its_file_has() {
        let page = |name: &str| FilePage::named(name).expect("a page").roff();
        for (name, words) in [
            ("policy", "weight = "),
            ("gang-rules.5", "[[gang]]"),
            ("unisono-topology", "members"),
            ("study-file", "repetitions = "),
        ] {
            let page = page(name);
            assert!(page.contains(words) && page.contains(".SH \"SEE ALSO\""), "{name}: {page}");
            assert!(!page.contains("//!") && !page.contains("```"), "{page}");
        }
        assert!(!page("policy").contains("Where a policy is enforced"), "another section");
        assert!(FilePage::named("gang").is_none());
    }
}
