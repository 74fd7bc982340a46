//! The studies that `unisono study` brings: one file each in `studies/`, compiled in.

use crate::file::{BadStudy, StudyFile};

const FILES: &[(&str, &str)] = &[
    ("background.toml", include_str!("../studies/background.toml")),
    ("balance.toml", include_str!("../studies/balance.toml")),
    ("barriers.toml", include_str!("../studies/barriers.toml")),
    ("demand.toml", include_str!("../studies/demand.toml")),
    ("ghost-beside.toml", include_str!("../studies/ghost-beside.toml")),
    ("ghost-crowded.toml", include_str!("../studies/ghost-crowded.toml")),
    ("ghost.toml", include_str!("../studies/ghost.toml")),
    ("granularity.toml", include_str!("../studies/granularity.toml")),
    ("latency.toml", include_str!("../studies/latency.toml")),
    ("middleware-control.toml", include_str!("../studies/middleware-control.toml")),
    ("middleware-download.toml", include_str!("../studies/middleware-download.toml")),
    ("middleware-effort.toml", include_str!("../studies/middleware-effort.toml")),
    ("middleware-events.toml", include_str!("../studies/middleware-events.toml")),
    ("middleware-remote.toml", include_str!("../studies/middleware-remote.toml")),
    ("middleware-requests.toml", include_str!("../studies/middleware-requests.toml")),
    ("middleware-rivals.toml", include_str!("../studies/middleware-rivals.toml")),
    ("middleware-rpc.toml", include_str!("../studies/middleware-rpc.toml")),
    ("middleware-streaming.toml", include_str!("../studies/middleware-streaming.toml")),
    ("middleware-web.toml", include_str!("../studies/middleware-web.toml")),
    ("one-sided.toml", include_str!("../studies/one-sided.toml")),
    ("overhead.toml", include_str!("../studies/overhead.toml")),
    ("programs.toml", include_str!("../studies/programs.toml")),
    ("queue-added.toml", include_str!("../studies/queue-added.toml")),
    ("queue-decisions.toml", include_str!("../studies/queue-decisions.toml")),
    ("queue-borrow.toml", include_str!("../studies/queue-borrow.toml")),
    ("queue-delay.toml", include_str!("../studies/queue-delay.toml")),
    ("queue-disk.toml", include_str!("../studies/queue-disk.toml")),
    ("queue-isolation.toml", include_str!("../studies/queue-isolation.toml")),
    ("queue-latency.toml", include_str!("../studies/queue-latency.toml")),
    ("queue-processor.toml", include_str!("../studies/queue-processor.toml")),
    ("queue-shares.toml", include_str!("../studies/queue-shares.toml")),
    ("queue-unshaped.toml", include_str!("../studies/queue-unshaped.toml")),
    ("several.toml", include_str!("../studies/several.toml")),
    ("switching.toml", include_str!("../studies/switching.toml")),
    ("tree-arrivals.toml", include_str!("../studies/tree-arrivals.toml")),
    ("tree-assumptions.toml", include_str!("../studies/tree-assumptions.toml")),
    ("tree-collectives.toml", include_str!("../studies/tree-collectives.toml")),
    ("tree-connectivity.toml", include_str!("../studies/tree-connectivity.toml")),
    ("tree-groups.toml", include_str!("../studies/tree-groups.toml")),
    ("tree-latency.toml", include_str!("../studies/tree-latency.toml")),
    ("tree-repair.toml", include_str!("../studies/tree-repair.toml")),
    ("tree-roots.toml", include_str!("../studies/tree-roots.toml")),
    ("tree-scale.toml", include_str!("../studies/tree-scale.toml")),
    ("tree-traffic.toml", include_str!("../studies/tree-traffic.toml")),
    ("waiting.toml", include_str!("../studies/waiting.toml")),
];

pub fn studies() -> Result<Vec<StudyFile>, BadStudy> {
    let mut all =
        FILES.iter().map(|(name, text)| StudyFile::parse(name, text)).collect::<Result<Vec<_>, _>>()?;
    all.sort_by_key(|file| file.order);
    Ok(all)
}

/// The text of the study with this id.
pub fn text(id: &str) -> Option<&'static str> {
    let is_meant =
        |(name, text): &&(&str, &str)| StudyFile::parse(name, text).is_ok_and(|file| file.id == id);
    FILES.iter().find(is_meant).map(|(_, text)| *text)
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
    fn every_file_in_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/studies");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the folder")
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|n| n.ends_with(".toml"))
            .collect();
        let known: BTreeSet<String> = FILES.iter().map(|(n, _)| (*n).to_owned()).collect();
        assert_eq!(there, known);
    }

    #[test]
    fn everything_together_keeps_to_its_time() {
        let total = |profile| -> Duration {
            let all = studies().expect("good files");
            let everything = all.iter().filter(|file| !file.named_only);
            everything.map(|file| plan(file, profile, 1).expect("planned").estimate).sum()
        };
        let quick = total(Profile::Quick);
        assert!(quick <= Duration::from_secs(120), "quick: {quick:?}");
        assert!(total(Profile::Smoke) <= Duration::from_secs(25), "smoke: {:?}", total(Profile::Smoke));
        assert!(
            total(Profile::Paper) <= Duration::from_secs(4 * 3600),
            "paper: {:?}",
            total(Profile::Paper)
        );
    }
}
