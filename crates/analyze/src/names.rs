//! A cgroup as people call it.
use whyslow_model::table::Cgroup;
use whyslow_model::{Subject, SubjectKind};

/// The cgroup as a victim.
#[must_use]
pub fn cgroup_subject(cgroup: &Cgroup) -> Subject {
    Subject::new(SubjectKind::Cgroup, cgroup.path.clone(), cgroup.path.clone())
}
