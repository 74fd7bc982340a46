//! Gangs as a service: running programs are added to a daemon, and removed from it.
//!
//! ```text
//!   client --- a line of JSON ---> peers.rs    lines, floods                                  [pure]
//!                                  request.rs  parses and checks requests                     [pure]
//!                                  state.rs    the gangs, their owners, permissions           [pure]
//!                                  rules.rs    the file of rules                              [pure]
//!                                  keeper.rs   makes gangs of the targets of rules
//!                                  adopt.rs    processes and control groups become a gang's home
//!                                  limits.rs   the quotas that turns enforce
//!                                  scan_times.rs  the times of scans                          [pure]
//!                                  pace.rs     the length of a slice                          [pure]
//!                                  own_time.rs the limit of switching time                    [pure]
//!                                  job_queue.rs, jobs.rs  work that takes longer than a turn of the loop
//!   daemon.rs, rounds.rs           tie them to the scheduler's thread of `host`
//!   server.rs                      the socket, signals, the end
//!   last_resort.rs                 the end of a daemon that is stuck
//!   client.rs, metrics.rs          the other end of the socket; OpenMetrics
//!   unit.rs                        the daemon as a unit of systemd
//! ```
//! `PROTOCOL.md` beside `Cargo.toml` describes the messages on the socket, and the state that survives each
//! exit.
//!
//! Gangs of the daemon have no weight against other programs and are not lent idle cores: both would take
//! their processes out of the groups whose limits apply to them. So other programs keep the share that Linux
//! gives them.
//!
//! Cost: while no two gangs want the same cores, only the scans, which take at most a thousandth of a core.
//! With turns, `host/hold.rs` gives the cost of a switch.

pub mod adopt;
pub mod client;
mod daemon;
mod job_queue;
mod jobs;
pub mod keeper;
mod last_resort;
mod limits;
pub mod metrics;
mod own_time;
pub mod pace;
pub mod peers;
pub mod request;
mod rounds;
pub mod rules;
mod scan_times;
pub mod server;
pub mod state;
pub mod unit;
