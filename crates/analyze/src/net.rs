//! Network: the queues between a device and a reader.

pub(crate) mod pings;
pub(crate) mod receive;
pub(crate) mod stalls;
