use std::sync::atomic::AtomicBool;
use std::time::*;
fn main() {
    let t = Instant::now();
    let secs: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(3);
    let plan =
        whyslow_probe::Plan { window: Duration::from_secs(secs), root: "/".into(), version: "x".into() };
    let rec = whyslow_probe::record(&plan, &AtomicBool::new(false), &mut |d| {
        eprintln!("{d:?} at {:?}", t.elapsed())
    });
    eprintln!("done {:?}", t.elapsed());
    println!("{:#?}", rec.meta);
    println!("{:#?}", rec.missing);
    let mut tasks = rec.tables.tasks.unwrap();
    tasks.sort_by_key(|t| std::cmp::Reverse(t.exec_ns));
    let ms = |n: u64| n / 1_000_000;
    for t in tasks.iter().take(25) {
        println!(
            "{:6} {:16} exec {:6} traced {:6} delay {:6} runnable {:6} io {:5} blk {:5} sleep {:6} unk {:5} lived {:6} cyc {} allowed {} {} cg {:x} ended {} in {}/{}",
            t.pid,
            t.comm,
            ms(t.exec_ns),
            ms(t.traced_ns),
            ms(t.run_delay_ns),
            ms(t.runnable_ns),
            ms(t.io_ns),
            ms(t.blocked_ns),
            ms(t.sleep_ns),
            ms(t.unknown_ns),
            ms(t.lived_ns),
            t.cycles,
            t.allowed,
            t.weight,
            t.cpu_cgroup,
            t.ended,
            t.switches_in,
            t.runnable_count
        );
    }
    println!("{} tasks", tasks.len());
    for c in rec.tables.cgroups.unwrap().iter().take(20) {
        println!("{c:?}");
    }
    let mut s = rec.tables.samples.unwrap();
    s.sort_by_key(|s| std::cmp::Reverse(s.count));
    for s in s.iter().take(8) {
        println!("{} {} {:?} | {:?}", s.comm, s.count, s.kernel, s.user);
    }
    let mut w = rec.tables.waits.unwrap();
    w.sort_by_key(|s| std::cmp::Reverse(s.ns));
    for s in w.iter().filter(|w| w.state != "sleep").take(12) {
        println!(
            "{} {} {}ms n{} worst {} {:?}",
            s.comm,
            s.state,
            ms(s.ns),
            s.count,
            ms(s.worst_ns),
            s.kernel
        );
    }
    for c in rec.tables.cpus.unwrap() {
        println!("{c:?}");
    }
}
