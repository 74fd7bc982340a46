//! Reads a policy from its file, with the subscribers of the table that it names.

use crate::exit::Failure;
use crate::text_file;
use std::path::Path;
use unisono_fairqueue::{Policy, PolicyError, SubscribersError, SubscribersFile};
use unisono_linux::read::{HAND_WRITTEN, MACHINE_WRITTEN};

/// Reads and checks a policy; - is standard input. Returns the file's name for messages, and the policy. A
/// table of subscribers is found beside the policy's file.
pub(super) fn read(path: &Path) -> anyhow::Result<(String, Policy)> {
    let (name, text) = text_file::read(path, HAND_WRITTEN)?;
    let refuse = |name: &str, error: PolicyError| Failure::Usage(format!("{name}:{error}"));
    let Some(key) = SubscribersFile::in_policy(&text).map_err(|error| refuse(&name, error))? else {
        let policy = Policy::parse(&text).map_err(|error| refuse(&name, error))?;
        return Ok((name, policy));
    };
    let beside = path.parent().unwrap_or(Path::new("")).join(&key.file);
    let (table_name, table) = text_file::read(&beside, MACHINE_WRITTEN)?;
    let whole = key.insert(&text, &table).map_err(|error| refuse(&table_name, error))?;
    let policy = whole.parse().map_err(|error| match error {
        SubscribersError::InTable(error) => refuse(&table_name, error),
        SubscribersError::InPolicy(error) => refuse(&name, error),
    })?;
    Ok((name, policy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_table_is_beside_its_policy_and_a_mistake_is_in_the_one_that_has_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("policy.toml");
        let read_with = |policy: &str, table: &str| {
            fs::write(&path, policy).expect("it can be written");
            fs::write(directory.path().join("s.csv"), table).expect("it can be written");
            read(&path).map(|(_, policy)| policy.rules.len()).map_err(|error| error.to_string())
        };
        let policy = "rate = \"1gbit\"\nsubscribers = \"s.csv\"\n";
        assert_eq!(read_with(policy, "\u{feff}Name,Addresses\na,10.0.0.1\n"), Ok(1));
        let error = read_with(policy, "Name,Addresses\na,10.0.0\n").expect_err("no address");
        assert!(error.contains("s.csv:2:3: address: "), "{error}");
        let error = read_with(&format!("{policy}[class.b]\nwieght = 1\n"), "Name,Addresses\na,10.0.0.1\n");
        assert!(error.expect_err("a mistake").contains("policy.toml:4:1: unknown key"));
        let error = read_with("subscribers = 5\n", "").expect_err("no file");
        assert!(error.contains("policy.toml:1:15: expected the name of a file"), "{error}");
        assert_eq!(read_with("rate = \"1gbit\"\n", ""), Ok(0));
    }
}
