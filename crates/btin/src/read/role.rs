//! Decides from the attributes of vertices whether they are switches or hosts.
//!
//! Graph programs use the word *node* for many things: `type="Node"` is a label for drawings in topology
//! collections, and GraphML and DOT call every vertex a node. So a vertex gets its role only from an
//! attribute for roles, and outside the attribute `role`, the word *node* counts only if all values of the
//! same attribute are roles and one of them is a switch. In DOT it also counts if the cables fit hosts. A
//! user can override this with `--role ATTRIBUTE=VALUE:switch` or `--role ATTRIBUTE=VALUE:host`.

use super::Language;
use super::draft::Draft;
use super::words::{ATTRIBUTES, RoleWords, VertexKind, VertexRole};

#[derive(Clone, Copy, PartialEq, Eq)]
enum WordMeaning {
    Role(VertexKind),
    /// The word *node* in an attribute other than `role` that names no switch, or that has other values than
    /// roles.
    Doubtful,
    Nothing,
}

impl Draft {
    /// Gives each vertex the role that the file states, and then the user's roles. Attributes that give no
    /// role are counted as left out.
    pub(super) fn roles(&mut self, roles: &[VertexRole], language: Language) -> Result<(), String> {
        let stated = std::mem::take(&mut self.stated);
        let matches = |role: &VertexRole, (key, value): &(String, String)| {
            role.attribute == *key && role.value == *value
        };
        for role in roles {
            if !stated.words.iter().any(|word| matches(role, word)) {
                return Err(self.unmatched_role(role, &stated));
            }
        }
        let asked: Vec<Option<VertexKind>> = stated
            .words
            .iter()
            .map(|word| Some(roles.iter().find(|role| matches(role, word))?.kind))
            .collect();
        let mut meanings: Vec<WordMeaning> =
            stated.words.iter().map(|word| meaning(word, &stated.words)).collect();
        if language == Language::Dot {
            self.infer_hosts(&mut meanings, &stated);
        }
        // the user's roles are applied last, so that they override the file
        for is_asked in [false, true] {
            for (vertex, word) in &stated.pairs {
                let at = *word as usize;
                match (asked[at], meanings[at]) {
                    (Some(kind), _) if is_asked => self.vertices[*vertex].kind = kind,
                    (None, WordMeaning::Role(kind)) if !is_asked => self.vertices[*vertex].kind = kind,
                    (None, WordMeaning::Doubtful | WordMeaning::Nothing) if !is_asked => {
                        self.unknown("node attribute", &stated.words[at].0);
                    }
                    _ => {}
                }
            }
        }
        for (at, (key, value)) in stated.words.iter().enumerate() {
            if asked[at].is_none() && meanings[at] == WordMeaning::Doubtful {
                self.notes.push(format!(
                    "{key}={value} is not taken for a role, because no other vertex has {key}=switch; if it means \
                     hosts: --role {key}={value}:host"
                ));
            }
        }
        Ok(())
    }

    /// Decides whether the vertices whose word *node* is doubtful are hosts. DOT has no attribute `type` of
    /// its own, so `type=node` alone means a host if the cables fit: each such vertex has at most one cable,
    /// and no cable joins two of them.
    fn infer_hosts(&self, meanings: &mut [WordMeaning], stated: &RoleWords) {
        let mut doubtful = vec![false; self.vertices.len()];
        for (vertex, word) in &stated.pairs {
            doubtful[*vertex] = meanings[*word as usize] == WordMeaning::Doubtful;
        }
        let mut cables = vec![0_u32; self.vertices.len()];
        for cable in &self.cables {
            if doubtful[cable.a.vertex] && doubtful[cable.b.vertex] {
                return;
            }
            cables[cable.a.vertex] += 1;
            cables[cable.b.vertex] += 1;
        }
        if doubtful.iter().zip(cables).all(|(doubtful, cables)| !doubtful || cables <= 1) {
            for meaning in meanings.iter_mut().filter(|meaning| **meaning == WordMeaning::Doubtful) {
                *meaning = WordMeaning::Role(VertexKind::Node);
            }
        }
    }

    /// Makes the error for a role that matches no vertex. It names the values that occur.
    fn unmatched_role(&self, role: &VertexRole, stated: &RoleWords) -> String {
        const NAMED: usize = 8;
        let values: Vec<&str> = stated
            .words
            .iter()
            .filter(|(key, _)| *key == role.attribute)
            .map(|(_, value)| value.as_str())
            .take(NAMED)
            .collect();
        let others = match values.as_slice() {
            [] => format!("no vertex has an attribute {}", role.attribute),
            values => format!("{} is {}", role.attribute, values.join(", ")),
        };
        format!("--role {role}: no vertex has {}={}; {others}", role.attribute, role.value)
    }
}

fn meaning((key, value): &(String, String), words: &[(String, String)]) -> WordMeaning {
    if !ATTRIBUTES.contains(&key.as_str()) {
        return WordMeaning::Nothing;
    }
    let Some(kind) = VertexKind::from_word(value) else { return WordMeaning::Nothing };
    if key == "role" || !value.eq_ignore_ascii_case("node") {
        return WordMeaning::Role(kind);
    }
    let mut values =
        words.iter().filter(|(other, _)| other == key).map(|(_, value)| VertexKind::from_word(value));
    let is_about_roles = values.clone().all(|kind| kind.is_some());
    if is_about_roles && values.any(|kind| kind == Some(VertexKind::Switch)) {
        WordMeaning::Role(kind)
    } else {
        WordMeaning::Doubtful
    }
}
