//! Words for messages and command lines.
//!
//! ```
//! use unisono_text::{counted, named, nearest};
//!
//! named! {
//!     "colour";
//!     /// A colour of a class in a picture.
//!     pub enum Colour { Red = "red", DarkBlue = "dark-blue", }
//! }
//! assert_eq!("dark-blue".parse(), Ok(Colour::DarkBlue));
//! assert_eq!(
//!     "blue".parse::<Colour>().map_err(|error| error.to_string()),
//!     Err("no colour is called 'blue': one of red, dark-blue".to_owned())
//! );
//! assert_eq!(nearest("drak-blue", Colour::ALL.map(Colour::name)), Some("dark-blue"));
//! assert_eq!(counted(2, "switch"), "2 switches");
//! ```
#![forbid(unsafe_code)]

mod counted;
mod named;
mod nearest;
mod position;
mod shell;
mod unknown;

pub use counted::counted;
pub use named::UnknownName;
pub use nearest::{misspelt, nearest};
pub use position::Position;
pub use shell::{shell_quoted, shell_word};
pub use unknown::explain_unknown;
