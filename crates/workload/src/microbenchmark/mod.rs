//! Small programs that studies start as processes of their own, beside the other programs.

pub mod hand_off;
pub mod tight_loop;
