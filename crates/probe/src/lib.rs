//! The parts that observe: BPF programs, kernel files, clocks. The code here changes nothing on the host and judges nothing.

mod addresses;
pub mod blocked_table;
pub mod bpf;
mod budget;
pub mod call_table;
pub mod child;
mod cost;
pub mod doctor;
pub mod files;
pub mod groups;
mod host;
mod irq_latency_table;
pub mod kallsyms;
pub mod listeners;
mod living;
pub mod lock_table;
mod mutex_owner;
mod open_files;
mod perf_event;
mod pid_map;
pub mod ping;
pub mod priority;
mod probes;
mod record;
pub mod redact;
mod rights;
mod sample_table;
pub mod span_table;
pub mod speed;
mod spin_table;
mod stall_table;
mod symbols;
mod task_table;
mod user_code;
pub mod work_table;

pub use budget::{OverBudget, OwnBudget};
pub use doctor::{Capability, claim, doctor};
pub use host::{monotonic_ns, process_cpu_ns};
pub use pid_map::why_ambiguous;
pub use record::{Asking, Follow, Observer, Plan, record, record_pings};

#[cfg(test)]
#[path = "../build/constants.rs"]
mod constants_of_sources;
#[cfg(test)]
mod test_group;
#[cfg(test)]
mod test_pids;
#[cfg(test)]
mod test_stuck;
