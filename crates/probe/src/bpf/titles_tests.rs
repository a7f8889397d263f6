//! The probe on processes of our own: words drawn at random, secrets among them, titles written over them.

use std::io::{BufRead as _, Write as _};
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::Duration;

use whyslow_model::table::BETWEEN_ARGUMENTS;

use super::super::sched::{Budget, Layout, RawSched, Sched};

/// Set in the process that [`a_server_calls_itself`] is to happen in: the title that it takes.
const CALLED: &str = "WHYSLOW_TEST_CALLED";

/// Numbers from the clock, printed: what fails can be drawn again.
struct Draw(u64);

impl Draw {
    fn new() -> Self {
        let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = std::env::var("WHYSLOW_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        println!("WHYSLOW_SEED={seed}");
        Draw(seed | 1)
    }

    fn below(&mut self, many: u64) -> u64 {
        // Steele and Vigna's splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 31) % many
    }

    /// Consonants and vowels by turns: no word of any list.
    fn word(&mut self, syllables: u64) -> String {
        let mut one = |of: &str| of.as_bytes()[self.below(of.len() as u64) as usize] as char;
        (0..syllables).flat_map(|_| [one("bdfglmnrz"), one("aiou")]).collect()
    }
}

/// The words of a process, whether it has ended or not.
fn line(seen: &RawSched, pid: u32) -> Option<String> {
    let ended = seen.exits.single().into_iter().filter(|exit| exit.pid == pid).map(|exit| exit.start_ns);
    let live = seen.live.iter().filter(|live| live.slot.pid == pid).map(|live| live.slot.start);
    ended.chain(live).find_map(|start| seen.titles.line(pid, start))
}

#[test]
fn root_executed_command_line_is_reported_without_its_secrets() {
    let mut draw = Draw::new();
    let mut slot = MaybeUninit::uninit();
    let mut sched =
        Sched::load(&mut slot, Layout::default(), Budget::of(2, false)).expect("root may load it");
    sched.begin().expect("root may trace the scheduler");
    let mut ran = Vec::new();
    for _ in 0..24 {
        let (plain, secret, last) = (draw.word(3), draw.word(7), draw.word(4));
        let mut words = vec![format!("/srv/{plain}")];
        words.extend(match draw.below(6) {
            0 => vec![format!("--password={secret}")],
            1 => vec!["--db-token".into(), secret.clone()],
            2 => vec![format!("https://joe:{secret}@host/")],
            3 => vec!["-H".into(), format!("Authorization: Basic {secret}")],
            4 => vec![format!("API_KEY={secret}")],
            _ => vec!["--data".into(), format!("{{\"secret\": \"{secret}\"}}")],
        });
        words.push(last.clone());
        let mut child = Command::new("/bin/sh").args(["-c", ":"]).args(&words).spawn().unwrap();
        child.wait().unwrap();
        ran.push((child.id(), words, secret, last));
    }
    let long = draw.word(200);
    let mut child = Command::new("/bin/true").arg(&long).spawn().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let (seen, _) = sched.finish().unwrap();
    for (pid, words, secret, last) in ran {
        let line = line(&seen, pid).unwrap_or_else(|| panic!("{words:?} was executed"));
        let line = line.replace(BETWEEN_ARGUMENTS, " ");
        assert!(line.starts_with(&format!("/bin/sh -c : {} ", words[0])), "{line} of {words:?}");
        assert!(
            line.ends_with(&last) && !line.contains(&secret) && line.contains("***"),
            "{line} of {words:?}"
        );
    }
    assert_eq!(
        line(&seen, child.id()).as_deref(),
        Some("/bin/true\u{1f}..."),
        "a word that was cut is not reported"
    );
}

/// Where the kernel has put our arguments and our environment (proc_pid_stat(5)).
fn area() -> (usize, usize, usize) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let field = |number: usize| fields[number - 3].parse().unwrap();
    (field(48), field(49), field(51))
}

/// For the next test, in a process of its own.
#[test]
#[ignore = "part of another test, in a process of its own"]
fn a_server_calls_itself() {
    let called = std::env::var(CALLED).unwrap();
    let (from, to, environment) = area();
    let mut title = called.into_bytes();
    match title.last() {
        // It goes on in the place of the environment, which is cleared.
        Some(b'>') => {
            title.resize((to - from + 20).min(environment - from), b'>');
            println!("called {}", title.len());
            title.resize(environment - from, 0);
        }
        // It fills the place of the arguments, and the environment stays.
        Some(b'<') => title.resize(to - from, b'<'),
        _ => title.resize(to - from, 0),
    }
    // SAFETY: our own memory, of that size; no code here reads arguments or variables any more.
    unsafe { std::ptr::copy_nonoverlapping(title.as_ptr(), from as *mut u8, title.len()) };
    println!("called {}", title.iter().filter(|byte| **byte != 0).count());
    // Its words are read when it leaves a CPU, a quarter of a second after they were read last.
    let rests = || [300, 10].into_iter().for_each(|ms| std::thread::sleep(Duration::from_millis(ms)));
    rests();
    if let Some(at) = title.iter().position(|byte| *byte == b'~') {
        // Its activity is now something else.
        title.splice(at.saturating_sub(4)..=at, *b"IDLE");
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(title.as_ptr(), from as *mut u8, title.len()) };
    }
    rests();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn root_title_of_a_server_is_reported_without_its_environment() {
    let mut draw = Draw::new();
    let mut slot = MaybeUninit::uninit();
    let mut sched =
        Sched::load(&mut slot, Layout::default(), Budget::of(2, false)).expect("root may load it");
    sched.begin().expect("root may trace the scheduler");
    let secret = draw.word(5);
    let server = |called: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "bpf::titles::tests::a_server_calls_itself", "--ignored", "--nocapture"])
            .env_clear()
            // The first of them, and it does not look like a variable.
            .env("A B", &secret)
            .env(CALLED, called)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let told =
            out.find_map(|line| line.split("called ").nth(1)?.parse::<usize>().ok()).expect("it says so");
        (child, out, told)
    };
    let short = format!("{}: app {} 10.0.0.7 UPDATE waiting", draw.word(4), draw.word(3));
    let [long, full] = [">", "<"].map(|end| format!("{}: serves {end}", draw.word(4)));
    let busy = draw.word(4);
    let busy = [format!("{busy}: app 10.0.0.7"), format!("{busy}: app 10.0.0.7 work~")];
    let mut all = [&short, &long, &full, &busy[1]].map(|called| server(called));
    std::thread::sleep(Duration::from_millis(800));
    let (seen, _) = sched.finish().unwrap();
    let reported = all.each_ref().map(|(child, ..)| line(&seen, child.id()));
    for (child, ..) in &mut all {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait().unwrap();
    }
    let whole = |title: &str, end: &str, bytes: usize| format!("{title}{}", end.repeat(bytes - title.len()));
    assert_eq!(reported[0].as_deref(), Some(short.as_str()));
    assert_eq!(reported[1].as_deref(), Some(whole(&long, ">", all[1].2).as_str()));
    assert_eq!(reported[3].as_deref(), Some(busy[0].as_str()), "its activity changes, its name does not");
    assert_eq!(reported[2].as_deref(), Some(whole(&full, "<", all[2].2).as_str()), "{secret} is none of it");
}
