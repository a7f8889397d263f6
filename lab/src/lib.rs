//! The lab: boots real kernels under emulation, puts real faults into them, and runs programs of this project there.
//!
//! One binary is all of it: the driver on the host, PID 1 of the guest, the guest kernel's loader of modules, the test bed
//! and its victims.

pub mod acpi;
pub mod cache;
pub mod child;
pub mod doctor;
pub mod guest;
pub mod guest_modules;
pub mod image;
pub mod init;
pub mod interrupt;
pub mod judge;
pub mod kernels;
pub mod live;
pub mod machine;
pub mod module;
pub mod orders;
pub mod place;
pub mod plan;
pub mod proof;
pub mod proven;
pub mod rounds;
pub mod scenario;
pub mod sched_ext;
pub mod smoke;
pub mod table;
pub mod testbed;
pub mod trouble;
pub mod truth;

pub use trouble::Trouble;
