//! Ordinary bad days on the live kernel, as a table: a victim, a resource and a culprit, each with its healthy twin.
//!
//! Victim, number, programs and whether the host is busy are drawn; the victim's own clock gives the loss. The headline (the first cause)
//! must name victim and culprit, and the loss within a quarter; on a twin whyslow must accuse no process. `WHYSLOW_SEED` repeats a run.
//! whyslow's documents are kept under `target/*/tmp/days`, or `WHYSLOW_KEPT`.

mod capture;
mod cpu;
mod day;
mod disk;
mod honest;
mod judge;
mod locks;
mod memory;
mod services;
mod stage;
#[cfg(test)]
mod stand_ins;
mod threads;

use day::{Cell, Day};
use whyslow_faults::Form;

macro_rules! days {
    ($($module:ident $day:expr;)*) => {
        $(mod $module {
            use crate::days::*;

            #[test]
            fn root_a_bad_day_is_told() {
                stage::run(Cell { day: $day, form: Form::Fault });
            }

            #[test]
            fn root_its_healthy_twin_is_quiet() {
                stage::run(Cell { day: $day, form: Form::Twin });
            }
        })*

        /// All of them.
        const DAYS: &[Day] = &[$($day),*];
    };
}

days! {
    light_beside_a_crowd Day::Weight;
    equal_beside_a_crowd Day::Number;
    nice_beside_a_crowd Day::Nice;
    beside_programs Day::Programs;
    short_lived_beside_programs Day::ShortLived;
    quota_beside_a_crowd Day::Quota;
    small_reads_behind_large Day::Reads;
    fsync_behind_writes Day::Fsync;
    cache_taken_by_a_neighbour Day::Evicted;
    cache_dropped Day::Dropped;
    cache_beside_a_heap Day::Heap;
    cache_beside_a_tmpfs Day::Tmpfs;
    flock_held_asleep Day::Asleep(locks::How::Flock);
    record_lock_held_asleep Day::Asleep(locks::How::Record);
    flock_held_at_work Day::AtWork(locks::How::Flock);
    record_lock_held_at_work Day::AtWork(locks::How::Record);
    retried_flock_held_asleep Day::Asleep(locks::How::Retried);
    retried_flock_held_at_work Day::AtWork(locks::How::Retried);
    record_lock_of_a_stopped_one Day::Stopped(locks::How::Record);
    flock_of_a_stopped_one Day::Stopped(locks::How::Flock);
    traced Day::Traced;
    file_system_of_a_daemon Day::Fuse;
    file_system_frozen Day::Frozen;
    service_stopped Day::ServiceStopped;
    service_of_one_thread Day::OneThread;
    service_that_sleeps Day::ServiceSleeps;
    service_behind_another Day::Upstream;
    service_behind_relays Day::Relays;
    service_whose_pool_sleeps Day::Pool;
    service_whose_pool_is_stuck Day::PoolStuck;
    service_whose_processes_sleep Day::Prefork(1);
    service_whose_processes_are_stuck Day::Prefork(2);
    service_whose_processes_wait_elsewhere Day::Prefork(3);
    service_with_an_interpreter Day::Interpreter;
    opens_behind_a_guard Day::Guard;
    service_with_a_quota Day::ServiceThrottled;
    service_beside_a_crowd Day::ServiceCrowded;
    service_behind_a_disk Day::ServiceReads;
    slow_reader Day::SlowReader;
}

#[test]
fn the_table_has_thirty_nine_days() {
    assert_eq!(DAYS.len(), 39);
    let names: std::collections::BTreeSet<String> = DAYS.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), DAYS.len(), "each day has its own name");
}
