//! Enumerations whose variants have codes in messages, and names in errors and reports.

/// Defines an enumeration with codes and names, and gives it `name`, `from_code`, and `ALL`: the variants in
/// the order of their codes, which begin at 1.
macro_rules! coded {
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$doc:meta])* $variant:ident = $code:literal $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $type {
            /// All variants, in the order of their codes.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$variant),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
            }
        }
    };
}

pub(crate) use coded;
