//! What each verb does on a live host, whatever is slow there: start and end, signals, exit status, outputs, limits on whyslow itself,
//! growth of its own cost. No test here judges what whyslow reports about the host's time.

mod blocked;
mod circle;
mod exam;
mod grace;
mod jobs;
mod limits;
mod net;
mod run;
mod scale;
mod work;

whyslow_faults::may_become_victim!();
