//! Enumerations with named variants, for command lines, records and errors.

use std::error::Error;
use std::fmt;

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

            /// Returns the name on command lines and in records.
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
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
                    $crate::UnknownName::new($noun, name, &Self::ALL.map(Self::name))
                })
            }
        }
    };
}

/// The error of `FromStr`: a text that is the name of no variant.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} is called '{}': one of {}", self.noun, self.name, self.known)
    }
}

impl Error for UnknownName {}

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
