//! Names of programs, as they are shown in tables, metrics and errors.
//!
//! A program sends its name in its greeting. By default it is the program's name in the kernel, with the
//! process number: `camera[4711]`. The broker checks a name, because the name appears in tables and in the
//! labels of metrics. A name is not an identity: two programs may have the same name, and permissions depend
//! on the kernel's credentials, a token or a certificate.

use std::path::Path;
use unisono_linux::read;

/// The maximum number of characters of a name: a table has room for it, and a label of a metric stays
/// readable.
pub(crate) const MAX_PROGRAM_NAME: usize = 64;

/// Checks the name of a program. The error says how to correct it.
pub fn check_program_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length > MAX_PROGRAM_NAME {
        return Err(format!(
            "a program's name of {length} characters; choose one of at most {MAX_PROGRAM_NAME}"
        ));
    }
    match name.chars().find(|character| character.is_control()) {
        Some(odd) => {
            Err(format!("the program's name {name:?} has the control character {odd:?}; leave it out"))
        }
        None => Ok(()),
    }
}

/// Makes a name that another protocol chose (a client identifier of MQTT) suitable for a table.
pub fn shown(name: &str) -> String {
    let visible = |character: char| if character.is_control() { '?' } else { character };
    name.chars().take(MAX_PROGRAM_NAME).map(visible).collect()
}

/// Returns the name of this process, as `ps` shows it, with its process number.
pub fn own_program_name() -> String {
    let comm = read::file(Path::new("/proc/self/comm"), read::HAND_WRITTEN).unwrap_or_default();
    let comm = shown(String::from_utf8_lossy(&comm).trim_end());
    let name = if comm.is_empty() { "program" } else { &comm };
    format!("{name}[{}]", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable_and_the_error_says_what_is_wrong() {
        assert_eq!(check_program_name(""), Ok(()));
        assert_eq!(check_program_name("Kamera \u{fc}ber Tor 1"), Ok(()));
        assert_eq!(check_program_name(&"\u{fc}".repeat(MAX_PROGRAM_NAME)), Ok(()));
        let said = check_program_name(&"x".repeat(MAX_PROGRAM_NAME + 1)).expect_err("too long");
        assert_eq!(said, "a program's name of 65 characters; choose one of at most 64");
        let said = check_program_name("a\nb").expect_err("a line break");
        assert_eq!(said, r#"the program's name "a\nb" has the control character '\n'; leave it out"#);
    }

    #[test]
    fn the_default_name_and_any_shown_name_may_be_a_name() {
        let own = own_program_name();
        assert_eq!(check_program_name(&own), Ok(()));
        assert!(own.ends_with(&format!("[{}]", std::process::id())) && !own.starts_with('['), "{own}");
        let odd = shown(&"a\u{7}".repeat(100));
        assert_eq!((check_program_name(&odd), odd.chars().count()), (Ok(()), MAX_PROGRAM_NAME));
    }
}
