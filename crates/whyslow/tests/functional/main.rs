//! What each verb does on a live host, whatever is slow there: how it begins and ends, signals, exit status, outputs, limits that
//! hold whyslow itself, how its own cost grows. Nothing here judges what it says of the host's time.

mod exam;
mod limits;
mod run;
mod scale;

whyslow_faults::may_become_victim!();
