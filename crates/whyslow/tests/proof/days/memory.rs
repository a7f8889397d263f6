//! Days on which a process takes page cache from others.

use std::io;

use whyslow_faults::programs::Programs;
use whyslow_faults::spec::Work;

use crate::days::stage::{Ground, Stage};
use crate::small::Small;

/// Two programs in a group with a limit: one reads a file that fits, again and again; the other streams a file that does not fit, or reads
/// one that fits beside it.
pub fn evicted(ground: &mut Ground<'_>) -> io::Result<Stage> {
    // The kernel keeps half of the pages however much data streams by, and nearly all pages of a small group of its own (mm/vmscan.c,
    // inactive_is_low, get_scan_count).
    const LIMIT: u64 = 128 << 20;
    let own = ground.group()?;
    let other = own.clone();
    let size = ground.draw.between(92, 104) << 20;
    let (small, large) = (ground.file(size)?, ground.fence.dir().join(ground.draw.word(8)));
    // A file of holes: as fast as memory, and larger than the test can read.
    std::fs::File::create(&large)?.set_len(1 << 40)?;
    let (block, burst_us) = (4096, ground.draw.between(2, 6));
    own.set_memory_limit(Some(LIMIT))?;
    let mut victim = ground.process(&own, 1, Work::Reread { file: small, block, random: true, burst_us })?;
    victim.go();
    victim.warm()?;
    let mut stage = ground.stage(victim, own, &["cache-taken", "memory-limit"]);
    // The group also belongs to the other program.
    stage.whose.retain(|name| name != stage.group.path());
    // The twin reads a file that fits beside it.
    let reads = match ground.is_fault() {
        true => format!(
            "i=0; while sleep 0.05; do dd if={} of=/dev/null bs=1M count=32 skip=$i; i=$((i + 32)); done",
            large.display()
        ),
        false => format!("while sleep 0.2; do dd if={} of=/dev/null bs=1M count=8; done", large.display()),
    };
    stage.said = format!("{reads}, reads of {block} bytes and {burst_us} us of CPU for each");
    stage.blame = vec!["sh -c".to_owned()];
    let dir = ground.fence.dir().to_owned();
    let mut kept = Vec::new();
    stage.begin = Box::new(move || {
        kept.push(Programs::of_script(&other, &dir, 1, &reads)?);
        Ok(())
    });
    Ok(stage)
}

/// A program reads a file that fits into its group's limit again and again, until something else fills the limit and stays there.
fn beside(
    ground: &mut Ground<'_>,
    says: &'static str,
    fill: impl FnOnce(u64) -> String,
) -> io::Result<Stage> {
    const LIMIT: u64 = 128 << 20;
    let group = ground.group()?;
    let size = ground.draw.between(64, 72) << 20;
    let file = ground.file(size)?;
    let block = ground.draw.between(1, 4) << 14;
    let bytes = if ground.is_fault() { ground.draw.between(94, 104) } else { 8 } << 20;
    group.set_memory_limit(Some(LIMIT))?;
    let mut victim = ground.process(&group, 1, Work::Reread { file, block, random: true, burst_us: 0 })?;
    victim.go();
    victim.warm()?;
    let other = group.clone();
    let mut stage = ground.stage(victim, group, &["memory-limit"]);
    let script = fill(bytes);
    (stage.said, stage.says) = (script.clone(), says);
    stage.blame = vec![stage.group.path().to_owned()];
    let (dir, mut kept) = (ground.fence.dir().to_owned(), Vec::new());
    stage.begin = Box::new(move || {
        kept.push(Programs::of_script(&other, &dir, 1, &script)?);
        Ok(())
    });
    Ok(stage)
}

/// Memory of another process, which is idle by then.
pub fn heap(ground: &mut Ground<'_>) -> io::Result<Stage> {
    beside(ground, "heap", |bytes| {
        format!(
            "exec perl -e 'open(my $zeros, \"<\", \"/dev/zero\"); sysread($zeros, my $all, {bytes}); sleep 60'"
        )
    })
}

/// A file in a tmpfs, whose writer has ended.
pub fn tmpfs(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let small = Small::new(ground.fence, "size=200m")?;
    let file = small.0.join(ground.draw.word(6));
    let mut stage = beside(ground, "files in tmpfs", |bytes| {
        format!("dd if=/dev/zero of={} bs=1M count={}; exec sleep 60", file.display(), bytes >> 20)
    })?;
    stage.keep.push(Box::new(small));
    Ok(stage)
}

/// A process tells the kernel again and again to drop the pages that the victim reads, or other pages.
pub fn dropped(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let [own, other] = [ground.group()?, ground.group()?];
    let size = ground.draw.between(32, 96) << 20;
    let (file, block) = (ground.file(size)?, ground.draw.between(1, 4) << 14);
    let twin = ground.file(size)?;
    let forgotten = if ground.is_fault() { file.clone() } else { twin };
    let mut victim = ground.process(&own, 1, Work::Reread { file, block, random: true, burst_us: 0 })?;
    victim.go();
    victim.warm()?;
    let mut stage = ground.stage(victim, own, &["cache-taken"]);
    let every = ground.draw.between(2, 6) as f64 / if ground.is_fault() { 100.0 } else { 10.0 };
    let drops = format!(
        "while sleep {every}; do dd of={} oflag=nocache conv=notrunc count=0; done",
        forgotten.display()
    );
    stage.said = drops.clone();
    stage.blame = vec![other.path().to_owned()];
    let dir = ground.fence.dir().to_owned();
    let mut kept = Vec::new();
    stage.begin = Box::new(move || {
        kept.push(Programs::of_script(&other, &dir, 1, &drops)?);
        Ok(())
    });
    Ok(stage)
}
