//! Days on which a process keeps a disk busy.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use whyslow_faults::Victim;
use whyslow_faults::host;
use whyslow_faults::ledger::Word;
use whyslow_faults::programs::Programs;
use whyslow_faults::spec::{Direct, Work};

use crate::days::stage::{Ground, Stage, names};

/// Small reads beside large reads of another process, many at once or one now and then.
pub fn reads(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let (own, others) = (ground.file(64 << 20)?, ground.file(64 << 20)?);
    let (block, large) = (ground.draw.between(1, 4) << 12, ground.draw.between(1, 4) << 20);
    let threads = if ground.is_fault() { ground.draw.between(12, 24) } else { 1 };
    let groups = [ground.group()?, ground.group()?];
    let how = Direct::Read;
    let work = match ground.is_fault() {
        true => Work::Direct { file: others, block: large, how },
        false => Work::DirectPaced { file: others, block: 4096, count: 1, every_us: 20_000 },
    };
    let neighbour = ground.process(&groups[1], threads, work)?;
    let victim = ground.process(&groups[0], 1, Work::Direct { file: own, block, how })?;
    let mut stage = ground.stage(victim, groups[0].clone(), &["disk-queue"]);
    stage.blame = names(&neighbour, &groups[1]);
    stage.said = format!("reads of {block} bytes beside {threads} of {large}");
    stage.begin = Box::new(move || {
        neighbour.go();
        Ok(())
    });
    Ok(stage)
}

/// fsync of a small file, beside a real program that writes and flushes much, or little.
pub fn fsync(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let groups = [ground.group()?, ground.group()?];
    let (file, rest_us) = (ground.fence.dir().join(ground.draw.word(8)), ground.draw.between(200, 2_000));
    let work = Work::Sync { file, block: 4096, each: 1, most: 1 << 20, rest_us };
    let victim = ground.process(&groups[0], 1, work)?;
    let mut stage = ground.stage(victim, groups[0].clone(), &["disk-queue"]);
    let (count, bytes) = (ground.draw.between(2, 4), ground.draw.between(48, 96));
    // Past the page cache; through it, with a flush by the program; or without a flush: the file system writes back a file that is
    // truncated, and a commit of the journal waits for new data.
    let how = ground.draw.pick(&["oflag=direct", "conv=fsync", ""]);
    let writes = match ground.is_fault() {
        true => format!("while :; do dd if=/dev/zero of=$$.out bs=1M count={bytes} {how}; done"),
        false => "while sleep 0.2; do dd if=/dev/zero of=$$.out bs=4k count=1 oflag=direct; done".to_owned(),
    };
    stage.said = format!("{count} x {writes}");
    stage.blame = vec![groups[1].path().to_owned(), "sh -c".to_owned()];
    let (group, dir) = (groups[1].clone(), ground.fence.dir().to_owned());
    let mut kept = Vec::new();
    stage.begin = Box::new(move || {
        kept.push(Programs::of_script(&group, &dir, count, &writes)?);
        Ok(())
    });
    Ok(stage)
}

/// A file system that another process freezes, as a snapshot or a backup does.
pub fn frozen(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let [own, group] = [ground.group()?, ground.group()?];
    let [image, dir] = [ground.draw.word(8), ground.draw.word(7)].map(|name| ground.fence.dir().join(name));
    host::make_file(&image, ground.draw.between(16, 48) << 20)?;
    std::fs::create_dir(&dir)?;
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status()?;
    if !made.success() {
        return Err(io::Error::other(format!("mkfs.ext4: {made}")));
    }
    let freezer = ground.process(&group, 1, Work::Frozen { image, dir: dir.clone() })?;
    freezer.go();
    let below = dir.strip_prefix("/").unwrap_or(&dir).join(ground.draw.word(5));
    let file = Path::new("/proc").join(freezer.pid().to_string()).join("root").join(below);
    let (threads, rest_us) = (ground.draw.between(1, 4), ground.draw.between(200, 2_000));
    let work = Work::Sync { file, block: 4096, each: 1, most: 1 << 20, rest_us };
    let victim = ground.process(&own, threads, work)?;
    let mut stage = ground.stage(victim, own, &["held-up"]);
    // The kernel does not record the process that froze it.
    stage.blame = vec!["a frozen file system".to_owned()];
    stage.said = format!("{threads} that write to a file system that is frozen");
    let (freezer, is_fault) = (Arc::new(freezer), ground.is_fault());
    let freeze = |freezer: &Arc<Victim>, on: bool| {
        let freezer = freezer.clone();
        move || freezer.ledger().word(Word::Mode).store(on.into(), Ordering::Release)
    };
    let (begin, end) = (freeze(&freezer, is_fault), freeze(&freezer, false));
    stage.begin = Box::new(move || {
        begin();
        Ok(())
    });
    stage.end = Box::new(end);
    Ok(stage)
}
