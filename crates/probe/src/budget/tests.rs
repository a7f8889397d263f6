use super::*;
use crate::test_group::{Group, in_group};

fn limits(left: Option<u64>, cpus: Option<f64>) -> OwnLimits {
    let limit = |left| MemoryLimit { cgroup: "/m".into(), limit: left + 3 * MIB, left, is_hidden: false };
    let memory = left.map(limit);
    let cpu = cpus.map(|cpus| CpuLimit { cgroup: "/c".into(), cpus });
    OwnLimits { memory: Ok(memory), cpu: Ok(cpu), hides_memory: false, hides_cpu: false }
}

fn budget(left: Option<u64>, cpus: Option<f64>) -> OwnBudget {
    OwnBudget::into(&limits(left, cpus), 200, false).unwrap()
}

#[test]
fn without_limits_or_with_wide_ones_nothing_is_shed_and_nothing_said() {
    for (left, cpus) in [(None, None), (Some(1 << 30), Some(2.0)), (Some(190 * MIB), Some(0.5))] {
        let budget = budget(left, cpus);
        assert_eq!(budget, OwnBudget::default());
        assert_eq!((budget.notes(false), budget.warning()), (Vec::new(), None));
    }
}

#[test]
fn for_a_memory_limit_that_cannot_be_read_tables_are_made_smaller_and_that_is_said() {
    let unclear = |what| Missing::unclear(what, "y");
    let unknown = OwnLimits { memory: Err(unclear("m")), cpu: Err(unclear("c")), ..limits(None, None) };
    let budget = OwnBudget::into(&unknown, 200, true).unwrap();
    assert_eq!((budget.halvings, &budget.thrift), (HALVINGS_WHEN_UNKNOWN, &None));
    assert!(need(budget.halvings, 200, false) <= 64 * MIB);
    let notes = budget.notes(false);
    let [Missing::Skipped { what, reason }, memory, cpu] = &notes[..] else { panic!("{notes:?}") };
    assert_eq!((what.as_str(), memory, cpu), ("a part of the tables", &unclear("m"), &unclear("c")));
    assert!(reason.contains("memory limit that cannot be read; each table has 1/16"), "{reason}");
    let said = budget.warning().expect("a killed whyslow has no other place to report it");
    assert!(said.contains(&unclear("m").to_string()) && !said.contains(&unclear("c").to_string()), "{said}");
    let scarce = OwnLimits { cpu: limits(None, Some(0.1)).cpu, ..unknown };
    let notes = OwnBudget::into(&scarce, 200, true).unwrap().notes(false);
    assert!(notes.contains(&unclear("m")) && notes.iter().any(|note| note.what() == "a part of the tables"));
}

#[test]
fn tables_are_halved_until_they_fit_and_the_limit_is_named() {
    assert_eq!(budget(Some(120 * MIB), None).halvings, 1);
    assert_eq!(budget(Some(71 * MIB), None).halvings, 3, "a quarter would leave no room on a busy host");
    let tight = budget(Some(66 * MIB), None);
    assert_eq!(tight.halvings, 3);
    let notes = tight.notes(false);
    let [Missing::Skipped { what, reason }] = &notes[..] else { panic!("{notes:?}") };
    assert_eq!(what, "a part of the tables");
    for word in ["a memory limit of 69 MiB in cgroup /m", "leaves 66 MiB", "needs 187 MiB", "1/8 of its rows"]
    {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    assert!(
        OwnBudget::into(&limits(Some(66 * MIB), None), 200, true).unwrap().halvings > 3,
        "`run` needs more"
    );
}

/// Memory used in the group may be page cache.
#[test]
fn under_a_limit_that_no_file_shows_is_refused_only_what_the_limit_has_no_room_for() {
    let hidden = |limit, left| {
        let memory = MemoryLimit { cgroup: "/pod".into(), limit, left, is_hidden: true };
        OwnBudget::into(&OwnLimits { memory: Ok(Some(memory)), ..limits(None, None) }, 200, false)
    };
    assert_eq!(hidden(1 << 30, 900 * MIB), Ok(OwnBudget::default()));
    let full = hidden(100 * MIB, 0).unwrap();
    assert_eq!(full.halvings, MOST_HALVINGS);
    let said = full.warning().unwrap();
    for word in ["100 MiB in cgroup /pod, which no file here shows and leaves at least 0 B", "needs 187 MiB"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(hidden(30 * MIB, 0).is_err());
}

/// The namespace begins below the group with the limit; its files are the host's, or its own.
#[test]
fn root_a_limit_above_our_cgroup_namespace_is_met_by_smaller_tables() {
    let Some(group) = Group::new("memory") else { return };
    group.set("memory.limit_in_bytes", &(100 * MIB).to_string());
    let inside = group.file("in");
    std::fs::create_dir(&inside).unwrap();
    let reported = [false, true].map(|own_mounts| {
        in_group(&inside, || {
            enter_namespace(own_mounts);
            match OwnBudget::here(false) {
                Ok(budget) => format!("{} halvings: {:?}", budget.halvings, budget.warning()),
                Err(error) => error.to_string(),
            }
        })
    });
    while std::fs::remove_dir(&inside).is_err() {
        std::thread::yield_now();
    }
    for reported in reported {
        assert!(["1 ", "2 "].iter().any(|halvings| reported.starts_with(halvings)), "{reported}");
        assert!(reported.contains("a memory limit of 100 MiB in cgroup /whyslow-test-"), "{reported}");
    }
}

fn enter_namespace(own_mounts: bool) {
    let flags = libc::CLONE_NEWCGROUP | if own_mounts { libc::CLONE_NEWNS } else { 0 };
    let nothing = std::ptr::null::<libc::c_void>();
    let (root, memory, kind) = (c"/".as_ptr(), c"/sys/fs/cgroup/memory".as_ptr(), c"cgroup".as_ptr());
    // SAFETY: numbers, and strings that end with a zero; what is mounted is seen in the namespace alone.
    unsafe {
        assert_eq!(libc::unshare(flags), 0);
        if own_mounts {
            let private = libc::MS_PRIVATE | libc::MS_REC;
            assert_eq!(libc::mount(nothing.cast(), root, nothing.cast(), private, nothing), 0);
            assert_eq!(libc::umount2(memory, libc::MNT_DETACH), 0);
            assert_eq!(libc::mount(kind, memory, kind, 0, c"memory".as_ptr().cast()), 0);
        }
    }
}

#[test]
fn too_small_memory_limit_error_names_cgroup_room_and_need() {
    let said = OwnBudget::into(&limits(Some(30 * MIB), None), 200, false).unwrap_err().to_string();
    for word in ["cgroup /m (33 MiB)", "leaves 30 MiB", "at least 56 MiB"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(OwnBudget::into(&limits(Some(0), None), u32::MAX, true).is_err());
    let needs = |threads| {
        (30..4096).find(|mib| OwnBudget::into(&limits(Some(mib * MIB), None), threads, true).is_ok())
    };
    assert!(
        needs(200).is_some() && needs(u32::MAX).is_none_or(|mib| Some(mib) > needs(200)),
        "a crowd needs more places"
    );
}

#[test]
fn with_a_tenth_of_a_cpu_the_quota_is_named_and_what_few_ask_for_is_left_out() {
    let thrifty = budget(None, Some(0.1));
    assert!(thrifty.thrift.is_some());
    let notes = thrifty.notes(false);
    let quota = "a CPU quota of 10 % of a CPU in cgroup /c: answers take longer";
    assert!(notes.iter().all(|note| note.to_string().contains(quota)), "{notes:?}");
    for what in ["CPU speed", "IRQ latency", "cross-CPU calls", "a part of the tables"] {
        assert!(notes.iter().any(|note| note.what() == what), "{what}: {notes:?}");
    }
    assert!(thrifty.warning().unwrap().contains(quota));
    assert!(!thrifty.notes(true).iter().any(|note| note.what() == "CPU speed"), "`whyslow cpu` asks for it");
}

#[test]
fn both_limits_are_named() {
    let both = budget(Some(66 * MIB), Some(0.1));
    assert_eq!(both.halvings, 3);
    let warning = both.warning().unwrap();
    assert!(warning.contains("memory limit") && warning.contains("CPU quota"), "{warning}");
    let both = budget(Some(100 * MIB), Some(0.1));
    let said: Vec<String> = both.notes(false).iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|note| note.contains("memory limit")), "{said:?}");
    assert!(said.iter().any(|note| note.contains("CPU quota")), "{said:?}");
}
