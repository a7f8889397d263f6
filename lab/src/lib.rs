//! The lab: boots real kernels under emulation, puts real faults into them, and runs programs of this project there.
//!
//! One binary is all of it: the driver on the host, PID 1 of the guest, and the guest kernel's loader of modules.

pub mod acpi;
pub mod child;
pub mod doctor;
pub mod guest_modules;
pub mod image;
pub mod init;
pub mod interrupt;
pub mod kernels;
pub mod machine;
pub mod module;
pub mod orders;
pub mod place;
pub mod stored;
pub mod trouble;

pub use trouble::Trouble;
