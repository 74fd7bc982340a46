//! Commands that a reader can paste into a shell.

use std::ffi::OsStr;

/// Quotes a command for a shell.
pub fn shell_quoted(command: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<String> =
        command.iter().map(|word| shell_word(&word.as_ref().to_string_lossy())).collect();
    words.join(" ")
}

/// Quotes a word for a shell, if it needs that.
pub fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
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
