//! Enumerations with named variants, for command lines, records and errors. The macro is in this crate
//! because every crate with such an enumeration may depend on this one.

/// Defines an enumeration with `ALL`, `name` and `Display`. After a noun in quotes, such as `"barrier
/// algorithm";`, it also defines `FromStr`, whose error ([`UnknownName`]) lists the names.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            /// All variants, in the order of the documentation.
            $vis const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name on command lines and in records.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
    ($noun:literal; $(#[$about:meta])* $vis:vis enum $type:ident { $($variants:tt)* }) => {
        $crate::named! { $(#[$about])* $vis enum $type { $($variants)* } }

        impl std::str::FromStr for $type {
            type Err = $crate::named::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
                    $crate::named::UnknownName::new($noun, name, &Self::ALL.map(Self::name))
                })
            }
        }
    };
}

pub use named;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {noun} is called '{name}': one of {known}")]
pub struct UnknownName {
    noun: &'static str,
    name: String,
    known: String,
}

impl UnknownName {
    pub fn new(noun: &'static str, name: &str, known: &[&str]) -> Self {
        Self { noun, name: name.to_owned(), known: known.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    named! {
        "fruit";
        /// Something to eat.
        enum Fruit {
            Apple = "apple",
            DriedPlum = "dried-plum",
        }
    }

    #[test]
    fn every_name_parses_back_and_a_wrong_one_lists_the_right_ones() {
        for fruit in Fruit::ALL {
            assert_eq!(fruit.to_string().parse(), Ok(fruit));
        }
        let wrong = "plum".parse::<Fruit>().expect_err("not a name");
        assert_eq!(wrong.to_string(), "no fruit is called 'plum': one of apple, dried-plum");
    }
}
