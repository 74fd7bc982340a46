//! Commands that a reader can paste into a shell.

use std::ffi::OsStr;

/// Quotes a command for a shell.
pub fn shell_quoted(command: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<String> = command.iter().map(|word| shell_quoted_word(word.as_ref())).collect();
    words.join(" ")
}

fn shell_quoted_word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_back_every_word() {
        let words = ["it's", "", "a b", "$HOME", "--n=3", "x;y", "\"q\"", "`id`"];
        let line = format!("printf '%s\\n' {}", shell_quoted(&words));
        let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(printed.lines().collect::<Vec<_>>(), words);
    }
}
