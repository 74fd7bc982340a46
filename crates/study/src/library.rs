//! The built-in studies of `unisono study`: one file each in `studies/`, compiled in. Another program may add
//! more.

use crate::file::{BadStudy, StudyFile};
use std::sync::OnceLock;

// `FILES: &[(name, text)]`, made by build.rs from studies/*.toml
include!(concat!(env!("OUT_DIR"), "/studies.rs"));

fn files() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    FILES.iter().chain(ADDED.get().copied().unwrap_or_default())
}

type StudyTexts = &'static [(&'static str, &'static str)];

static ADDED: OnceLock<StudyTexts> = OnceLock::new();

pub(crate) fn add(studies: StudyTexts) {
    ADDED.get_or_init(|| studies);
}

/// Whether another program has added its studies.
pub fn is_extended() -> bool {
    ADDED.get().is_some()
}

pub fn studies() -> Result<Vec<StudyFile>, BadStudy> {
    let mut all = files().map(|(name, text)| StudyFile::parse(name, text)).collect::<Result<Vec<_>, _>>()?;
    all.sort_by_key(|file| file.order);
    Ok(all)
}

/// Returns the text of the study with this id.
pub fn study_text(id: &str) -> Option<&'static str> {
    let is_meant =
        |(name, text): &&(&str, &str)| StudyFile::parse(name, text).is_ok_and(|file| file.id == id);
    files().find(is_meant).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::profile::Profile;
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn every_built_in_study_is_a_good_file_with_a_name_of_its_own() {
        let all = studies().expect("good files");
        let ids: BTreeSet<&str> = all.iter().map(|f| f.id.as_str()).collect();
        let orders: BTreeSet<u32> = all.iter().map(|f| f.order).collect();
        assert_eq!((ids.len(), orders.len()), (FILES.len(), FILES.len()));
    }

    #[test]
    fn everything_together_keeps_to_its_time() {
        let total = |profile| -> Duration {
            let all = studies().expect("good files");
            let everything = all.iter().filter(|file| !file.named_only);
            everything.map(|file| plan(file, profile, 1).expect("planned").estimate).sum()
        };
        let quick = total(Profile::Quick);
        // 109 s of two minutes: the rest is for the start, for repeated runs, and for the report
        assert!(quick <= Duration::from_secs(109), "quick: {quick:?}");
        assert!(total(Profile::Smoke) <= Duration::from_secs(25), "smoke: {:?}", total(Profile::Smoke));
        assert!(
            total(Profile::Paper) <= Duration::from_secs(4 * 3600),
            "paper: {:?}",
            total(Profile::Paper)
        );
    }
}
