//! The files of the working tree that differ from a base commit.

use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// The variable that names the base commit, for a CI service that knows the commit of its last run.
pub(super) const BASE: &str = "UNISONO_CI_BASE";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChangedFiles {
    /// The base in words, for messages.
    pub(super) base: String,
    /// Paths relative to the workspace, with `/`.
    pub(super) files: Vec<String>,
}

impl ChangedFiles {
    /// Finds the files of the repository at `root` that differ from the base. The base is the commit `asked`,
    /// if there is one. Otherwise it is the last commit that is also on the main branch of the remote
    /// repository; on that branch itself it is the first parent, so that a merge counts as one change.
    /// `None`: there is no base, as in a shallow clone.
    pub(super) fn find(root: &Path, asked: Option<&str>) -> anyhow::Result<Option<Self>> {
        let Some((commit, base)) = base(root, asked)? else { return Ok(None) };
        let list = |arguments: &[&str]| -> anyhow::Result<Vec<String>> {
            let text = git(root, arguments).with_context(|| format!("git {}", arguments.join(" ")))?;
            Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
        };
        // a moved file is listed under both names, because its old folder changes, too
        let mut files = list(&["diff", "--name-only", "--no-renames", "-z", &commit])?;
        files.extend(list(&["ls-files", "--others", "--exclude-standard", "-z"])?);
        Ok(Some(Self { base, files }))
    }
}

/// Returns the base commit, and its description.
fn base(root: &Path, asked: Option<&str>) -> anyhow::Result<Option<(String, String)>> {
    let commit = |name: &str| git(root, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]);
    if let Some(name) = asked {
        let Some(found) = commit(name) else { bail!("{BASE}={name} is no commit of this repository") };
        return Ok(Some((found, format!("{BASE}={name}"))));
    }
    let head = commit("HEAD");
    let shared = |main: &str| git(root, &["merge-base", "HEAD", main]).map(|found| (found, main.to_owned()));
    let main = shared("origin/HEAD").or_else(|| shared("origin/main"));
    if let Some((found, main)) = main.filter(|(found, _)| Some(found) != head.as_ref()) {
        return Ok(Some((found, format!("the last commit on {main}"))));
    }
    Ok(commit("HEAD^1").map(|found| (found, format!("the first parent of HEAD, because {BASE} is not set"))))
}

/// Returns the output of a git command; `None` if the command failed.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Repository(tempfile::TempDir);

    impl Repository {
        /// Creates a repository whose branch `main` has a commit for each of these files.
        fn new(files: &[&str]) -> Self {
            let repository = Self(tempfile::tempdir().expect("a directory"));
            repository.git(&["init", "--quiet", "--initial-branch", "main"]);
            files.iter().for_each(|file| repository.commit(file));
            repository
        }

        fn git(&self, arguments: &[&str]) {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
            let done = Command::new("git").args(identity).args(arguments).current_dir(self.0.path()).output();
            let done = done.expect("git starts");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }

        fn commit(&self, file: &str) {
            fs::write(self.0.path().join(file), "").expect("there is room");
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--no-gpg-sign", "--message", file]);
        }

        fn files(&self, asked: Option<&str>) -> Option<Vec<String>> {
            let found = ChangedFiles::find(self.0.path(), asked).expect("the base is a commit");
            found.map(|changes| changes.files)
        }
    }

    fn names(files: &[&str]) -> Option<Vec<String>> {
        Some(files.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_branch_is_compared_with_main_and_main_with_its_first_parent() {
        let repository = Repository::new(&["a", "b"]);
        repository.git(&["update-ref", "refs/remotes/origin/main", "main"]);
        assert_eq!(repository.files(None), names(&["b"]));
        repository.git(&["checkout", "--quiet", "-b", "work"]);
        repository.commit("c");
        repository.commit("d");
        assert_eq!(repository.files(None), names(&["c", "d"]));
        // after the merge, main contains the whole branch as one change
        repository.git(&["checkout", "--quiet", "main"]);
        repository.git(&["merge", "--quiet", "--no-ff", "--no-edit", "work"]);
        repository.git(&["update-ref", "refs/remotes/origin/main", "main"]);
        assert_eq!(repository.files(None), names(&["c", "d"]));
    }

    #[test]
    fn files_without_a_commit_are_changes_and_a_moved_file_has_both_names() {
        let repository = Repository::new(&["a", "b", "c"]);
        fs::write(repository.0.path().join("new"), "").expect("there is room");
        fs::rename(repository.0.path().join("a"), repository.0.path().join("z")).expect("it is there");
        assert_eq!(repository.files(Some("HEAD")), names(&["a", "new", "z"]));
    }

    #[test]
    fn a_base_that_is_no_commit_is_an_error_and_a_first_commit_has_no_base() {
        let repository = Repository::new(&["a"]);
        assert_eq!(repository.files(None), None);
        let error =
            ChangedFiles::find(repository.0.path(), Some("nothing")).expect_err("there is no such commit");
        assert_eq!(error.to_string(), "UNISONO_CI_BASE=nothing is no commit of this repository");
    }
}
