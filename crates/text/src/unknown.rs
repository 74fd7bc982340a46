//! Adds the nearest known key or value to serde's message about an unknown one.

use crate::nearest;

/// Adds the nearest known key to the message of serde about an unknown field.
pub fn explain_unknown(message: &str) -> String {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let is_unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let Some(wrong) = quoted.next().filter(|_| is_unknown) else { return message.replace('\n', " ") };
    let known: Vec<&str> = quoted.collect();
    let what = if message.starts_with("unknown field") { "key" } else { "value" };
    match nearest(wrong, known.iter().copied()) {
        Some(meant) => format!("unknown {what} `{wrong}`; did you mean `{meant}`?"),
        None => format!("unknown {what} `{wrong}`; expected one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_the_key_that_was_meant() {
        let message = explain_unknown("unknown field `titel`, expected one of `id`, `topic`, `title`");
        assert_eq!(message, "unknown key `titel`; did you mean `title`?");
        assert_eq!(explain_unknown("missing field `id`"), "missing field `id`");
    }
}
