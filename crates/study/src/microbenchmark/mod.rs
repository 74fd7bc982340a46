//! Small programs that studies start as processes of their own, beside [`crate::workload`].

pub mod hand_off;
pub mod tight_loop;
