//! The parts of a policy that a served disk enforces, and the numbers of its users.

use super::DiskError;
use unisono_fairqueue::{Order, Policy};

/// Checks that a served disk can enforce everything that the policy says about its classes. Matches apply to
/// packets and are ignored, so that a link and a disk can have one policy.
pub(super) fn check(policy: &Policy) -> Result<(), DiskError> {
    if let Some(part) = policy.packet_part() {
        return Err(DiskError::Policy { what: format!("{part}, which is for packets; remove it") });
    }
    for (id, class) in policy.hierarchy.classes() {
        let name = &class.name;
        let refused = if policy.ceilings[id.index()].is_some() {
            "a `ceiling`, which a served disk does not keep"
        } else if class.limit.is_some() {
            "a `limit` of packets, and no request of a disk may be dropped"
        } else if class.order == Order::Deadline {
            "order = \"deadline\", which is for packets (for a disk write a `deadline` into [disk.CLASS])"
        } else {
            continue;
        };
        return Err(DiskError::Policy { what: format!("the class {name} has {refused}; remove it") });
    }
    Ok(())
}

/// Returns the users who may choose each class, by class number; `None` for every user.
pub(super) fn users(
    policy: &Policy,
    user_id: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<Option<Vec<u32>>>, DiskError> {
    let mut users = vec![None; policy.hierarchy.classes().count()];
    for class in &policy.disk {
        let number = |name: &String| {
            let number = name.parse().ok().or_else(|| user_id(name));
            let class = &policy.hierarchy.class(class.class).name;
            number.ok_or_else(|| DiskError::UnknownUser { class: class.clone(), name: name.clone() })
        };
        let numbers = class.users.as_ref().map(|users| users.iter().map(number).collect());
        users[class.class.index()] = numbers.transpose()?;
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_a_disk_cannot_keep_are_refused_by_class() {
        let policy = Policy::parse("rate = \"1mbit\"\noverhead = 8\n[class.a]\n").expect("sound");
        assert!(check(&policy).is_err_and(|error| error.to_string().contains("`overhead`")));
        for (key, word) in [
            ("ceiling = \"1mbit\"", "ceiling"),
            ("packets = 5", "limit"),
            ("order = \"deadline\"", "[disk.CLASS]"),
            ("flows = \"fair\"", "`flows`"),
            ("fair = \"host\"", "`fair`"),
        ] {
            let policy = Policy::parse(&format!("rate = \"1mbit\"\n[class.a]\n{key}\n")).expect("sound");
            let error = check(&policy).expect_err(key).to_string();
            assert!(error.contains("class a has") && error.contains(word), "{error}");
        }
        let plain = "rate = \"1mbit\"\n[class.a]\nweight = 2\nmatch = [{ port = 5 }]\n";
        check(&Policy::parse(plain).expect("sound")).expect("matches may stay");
    }

    #[test]
    fn users_have_names_or_numbers_and_a_name_that_is_unknown_is_refused() {
        let text = "rate = \"1mbit\"\n[class.a]\n[class.b]\n[disk.a]\nusers = [\"alice\", 5]\n";
        let policy = Policy::parse(text).expect("sound");
        let alice = |name: &str| (name == "alice").then_some(1000);
        let found = users(&policy, alice).expect("known");
        let of = |name: &str| found[policy.hierarchy.find(name).expect("a class").index()].clone();
        assert_eq!((of("a"), of("b")), (Some(vec![1000, 5]), None));
        let error = users(&policy, |_| None).expect_err("unknown").to_string();
        assert!(error.contains("alice") && error.contains("class a"), "{error}");
    }
}
