//! Words of command lines in systemd unit files: quotes, escapes, specifiers, variables.
//!
//! Reference: systemd.service(5) on command lines, systemd.syntax(7).

/// An argument of a command line in a unit: quoted, with specifiers (`%`) and variables (`$`) escaped.
#[must_use]
pub fn argument(text: &str) -> String {
    program(text).replace('$', "$$")
}

/// The first word of a command line, where systemd replaces no variables.
#[must_use]
pub fn program(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' => quoted.push_str("%%"),
            letter if letter.is_control() => {
                let mut bytes = [0; 4];
                let bytes = letter.encode_utf8(&mut bytes).bytes();
                quoted.extend(bytes.map(|byte| format!("\\x{byte:02x}")));
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_would_replace_is_doubled_or_escaped() {
        assert_eq!(argument("/a b/50%n $HOME\n\"q\" \\x"), r#""/a b/50%%n $$HOME\x0a\"q\" \\x""#);
        assert_eq!(program("/a$b"), r#""/a$b""#, "no variables in the first word");
    }
}
