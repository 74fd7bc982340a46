//! The manual pages of files (section 5). Their text is a section of docs/files.md, and of other pages that
//! explain the file.

use super::markdown;
use std::path::{Path, PathBuf};

/// A page of section 5.
pub(super) struct FilePage {
    /// The name of the page after `unisono-`.
    pub(super) name: &'static str,
    about: &'static str,
    /// The parts of documents that the page consists of.
    parts: &'static [DocumentPart],
    see_also: &'static str,
}

/// A part of a document: from the line after the heading `heading` to the next line that starts with `until`.
struct DocumentPart {
    text: &'static str,
    heading: &'static str,
    until: &'static str,
}

/// The section of docs/files.md with this heading.
const fn keys(heading: &'static str) -> DocumentPart {
    DocumentPart { text: include_str!("../../../docs/files.md"), heading, until: "## " }
}

pub(super) const PAGES: &[FilePage] = &[
    FilePage {
        name: "policy",
        about: "shares of a link, of a disk or of processors (TOML)",
        parts: &[
            keys("## Policy"),
            DocumentPart {
                text: include_str!("../../../docs/shares.md"),
                heading: "## The policy",
                until: "## For each kind of operator",
            },
        ],
        see_also: "unisono-queue-apply(1), unisono-queue-cpu(1), unisono-queue-disk(1), unisono-queue-guard(1), unisono-queue-broker(1)",
    },
    FilePage {
        name: "gang-rules",
        about: "which programs and control groups the gang daemon makes gangs (TOML)",
        parts: &[keys("## Gang rules")],
        see_also: "unisono-gang-daemon(1), unisono-gang-install(1)",
    },
    FilePage {
        name: "topology",
        about: "a network of switches and its groups (btin-topo-1, JSON)",
        parts: &[keys("## Topology")],
        see_also: "unisono-tree-generate(1), unisono-tree-convert(1), unisono-tree-plan(1)",
    },
    FilePage {
        name: "study-file",
        about: "a study: what runs, how often, and what is compared (TOML)",
        parts: &[keys("## Study file")],
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

    /// Returns the parts of the documents, as Markdown.
    fn markdown(&self) -> String {
        self.parts.iter().map(DocumentPart::lines).collect::<Vec<_>>().join("\n")
    }
}

impl DocumentPart {
    fn lines(&self) -> String {
        let all = self.text.lines().skip_while(|line| *line != self.heading).skip(1);
        all.take_while(|line| !line.starts_with(self.until)).map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words between backquotes in the first cells of a page's tables.
    fn keys_of(page: &FilePage) -> Vec<String> {
        let text = page.markdown();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
    }

    fn page(name: &str) -> &'static FilePage {
        FilePage::named(name).expect("a page")
    }

    /// Returns the keys that an error about the key `zzzzzz` lists.
    fn listed(error: &str) -> Vec<String> {
        let (_, list) = error.split_once("expected one of ").unwrap_or_else(|| panic!("no list: {error}"));
        let list = list.split([';', '\n']).next().unwrap_or_default().replace('`', "");
        list.split(", ").map(|key| key.trim().to_owned()).collect()
    }

    #[test]
    fn each_page_describes_every_key_that_the_parser_of_its_file_knows() {
        let policy = |text: &str| unisono_fairqueue::Policy::parse(text).expect_err("zzzzzz").to_string();
        let class = "rate = \"1mbit\"\n[class.a]\n";
        let study =
            |text: &str| unisono_study::file::StudyFile::parse("", text).expect_err("zzzzzz").to_string();
        let rules = |text: &str| {
            let parsed = unisono_gang::service::rules::GangRules::parse(text, &|_| None);
            parsed.expect_err("zzzzzz").to_string()
        };
        let file = "id = \"a\"\ntopic = \"a\"\ntitle = \"\"\nquestion = \"\"\nmethod = \"\"\n";
        for (name, error) in [
            ("policy", policy("zzzzzz = 1")),
            ("policy", policy(&format!("{class}zzzzzz = 1"))),
            ("policy", policy(&format!("{class}match = [{{ zzzzzz = 1 }}]"))),
            ("policy", policy(&format!("{class}sockets = {{ zzzzzz = 1 }}"))),
            ("policy", policy("rate = \"1mbit\"\n[disk.a]\nzzzzzz = 1")),
            ("gang-rules", rules("[[gang]]\nzzzzzz = 1")),
            ("study-file", study("zzzzzz = 1")),
            ("study-file", study(&format!("{file}[[variant]]\nzzzzzz = 1"))),
            ("study-file", study(&format!("{file}[[sweep]]\nzzzzzz = 1"))),
            ("study-file", study(&format!("{file}[[chart]]\nzzzzzz = 1"))),
            ("study-file", study(&format!("{file}[[verdict]]\nzzzzzz = 1"))),
            ("study-file", study(&format!("{file}[[budget]]\nzzzzzz = 1"))),
        ] {
            let described = keys_of(page(name));
            let known = listed(&error);
            assert!(known.len() > 1, "{error}");
            let missing: Vec<&String> = known.iter().filter(|key| !described.contains(key)).collect();
            assert!(missing.is_empty(), "unisono-{name}.5 lacks {missing:?}: {error}");
        }
    }

    /// Returns the examples of a page, in the order of the text.
    fn examples(page: &FilePage) -> Vec<String> {
        let text = page.markdown();
        text.split("```")
            .skip(1)
            .step_by(2)
            .map(|block| block.split_once('\n').expect("lines").1.to_owned())
            .collect()
    }

    #[test]
    fn the_examples_of_the_pages_are_files_that_the_parsers_take() {
        unisono_fairqueue::Policy::parse(&examples(page("policy"))[0]).expect("a policy");
        let rules =
            unisono_gang::service::rules::GangRules::parse(&examples(page("gang-rules"))[0], &|_| Some(1));
        assert_eq!(rules.expect("rules").rules.len(), 2);
        unisono_study::file::StudyFile::parse("", &examples(page("study-file"))[0]).expect("a study");
        let topology =
            unisono_btin::NetworkFile::from_json(&examples(page("topology"))[0]).expect("a network");
        assert_eq!(topology.unknown, Vec::<String>::new());
        let mut every = keys_of(page("topology"));
        every.retain(|key| !key.is_empty());
        // a key that the format does not know would be listed
        let mut document: serde_json::Value =
            serde_json::from_str(&examples(page("topology"))[0]).expect("JSON");
        for (key, value) in [
            ("groups", serde_json::json!([[0]])),
            ("switch_names", serde_json::json!(["a", "b"])),
            ("node_names", serde_json::json!(["a", "b"])),
            ("switch_labels", serde_json::json!(["a", "b"])),
            ("node_labels", serde_json::json!(["a", "b"])),
            ("port_names", serde_json::json!({"0": {"5": "swp51"}})),
            ("generated", serde_json::json!({"connectivity": 0.5, "seed": 1, "bare_tree": false})),
        ] {
            document[key] = value;
        }
        let all: std::collections::BTreeSet<String> =
            document.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(all, every.into_iter().collect());
        let file = unisono_btin::NetworkFile::from_json(&document.to_string()).expect("a network");
        assert_eq!(file.unknown, Vec::<String>::new());
    }

    #[test]
    fn a_page_has_no_marks_of_its_sources_and_names_no_file_that_packages_lack() {
        for page in PAGES {
            let text = page.roff();
            assert!(text.contains(".SH \"SEE ALSO\"") && text.contains(".TP"), "{}: {text}", page.name);
            for mark in ["//!", "```", "[unisono", ".md", "docs/", "examples/", "\n|", "crates/", " below."] {
                assert!(!text.contains(mark), "unisono-{}.5 has {mark:?}: {text}", page.name);
            }
        }
        assert!(!page("policy").roff().contains("For each kind of operator"), "another section");
        for name in ["gang-rules.5", "unisono-topology"] {
            assert!(FilePage::named(name).is_some(), "{name}");
        }
        assert!(FilePage::named("gang").is_none());
    }
}
