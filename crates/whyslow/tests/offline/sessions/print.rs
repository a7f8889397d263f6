//! What the present build prints for a session: reads its commands, opens its recording, examines it and prints the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use whyslow::cli::Cli;
use whyslow::store;
use whyslow_analyze::examine;
use whyslow_model::shell::quoted;
use whyslow_model::{Document, Recording};
use whyslow_report::{Style, blocked, chains, cpus, jobs, locks, pings, text, work};

use crate::sessions::block::{Block, Source};

/// Stands for text that a session leaves out.
const LEFT_OUT: &str = "...";
/// A window differs from the requested length by some milliseconds.
const ABOUT: f64 = 0.1;

/// The folder of the sessions' recordings.
pub fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions")
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The right lines for a block.
pub fn printed(block: &Block, source: &Source) -> Result<Vec<String>, String> {
    let commands: Vec<&String> = block.lines.iter().filter(|line| line.starts_with("$ ")).collect();
    if commands.is_empty() {
        // A part of a page from another test.
        let page =
            fs::read_to_string(root().join(&source.file)).map_err(|err| format!("{}: {err}", source.file))?;
        return part(&page, source).map(|(lines, _)| lines);
    }
    let recording = store::open(&place().join(&source.file)).map_err(|err| format!("{err:#}"))?;
    let mut lines = Vec::new();
    for command in commands {
        lines.push(command.clone());
        lines.extend(answer(&command[2..], &recording, source)?);
    }
    Ok(lines)
}

/// The output of one command.
fn answer(line: &str, recording: &Recording, source: &Source) -> Result<Vec<String>, String> {
    let words: Vec<&str> = line.trim_start_matches("sudo ").split_whitespace().collect();
    match words[..] {
        ["whyslow", ..] => {
            let (mut lines, is_all) = part(&reported(line, &words, recording)?, source)?;
            lines.extend((!is_all).then(|| LEFT_OUT.to_owned()));
            Ok(lines)
        }
        ["ls", "-m", ref folders @ ..] => Ok(listed(folders, source)),
        // This makes the folder, and prints nothing.
        ["mkdir", "host", "&&", "tar", ..] => Ok(Vec::new()),
        _ => Err(format!("what does {line:?} print?")),
    }
}

/// The report, if this command line is whyslow's and would make this recording.
fn reported(line: &str, words: &[&str], recording: &Recording) -> Result<String, String> {
    Cli::try_parse_from(words).map_err(|err| err.to_string())?;
    let ours = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let verb = words[1..ours].first().filter(|word| !word.starts_with('-')).copied().unwrap_or("exam");
    let reported: fn(&Document, &Style) -> String = match verb {
        "chains" => chains,
        "locks" => locks,
        "work" => work,
        "jobs" => jobs,
        "blocked" => blocked,
        "cpu" => cpus,
        "net" => pings,
        "exam" | "run" | "attach" | "report" => text,
        _ => return Err(format!("{verb} prints no report of a recording: {line:?}")),
    };
    nothing_is_left_undone(verb, &words[1..ours])?;
    if verb == "run" {
        is_its_command(line, recording)?;
    } else if verb != "report" {
        is_its_window(&words[1..ours], recording)?;
    }
    let style = Style { verbose: words[..ours].contains(&"-v"), ..Style::default() };
    Ok(reported(&examine(recording), &style))
}

/// Options that this code does not carry out are refused: a session must show what its command line prints.
fn nothing_is_left_undone(verb: &str, options: &[&str]) -> Result<(), String> {
    let mut rest = options.iter().filter(|word| **word != verb).peekable();
    while let Some(word) = rest.next() {
        match *word {
            "-v" => {}
            "--watch" if verb == "net" => {}
            "--for" => drop(rest.next()),
            file if verb == "report" && !file.starts_with('-') => {}
            other => return Err(format!("{other:?} is not carried out for a session")),
        }
    }
    Ok(())
}

fn is_its_window(options: &[&str], recording: &Recording) -> Result<(), String> {
    let asked = options.iter().position(|word| *word == "--for").and_then(|at| options.get(at + 1));
    let seconds: f64 =
        asked.unwrap_or(&"10s").trim_end_matches('s').parse().map_err(|_| "no seconds".to_owned())?;
    let window = recording.window().as_secs_f64();
    let is_near = (window / seconds - 1.0).abs() < ABOUT;
    if is_near { Ok(()) } else { Err(format!("{seconds} s were requested, {window} s were recorded")) }
}

fn is_its_command(line: &str, recording: &Recording) -> Result<(), String> {
    let command = recording.meta.watched.as_ref().and_then(|watched| watched.command.as_ref());
    let argv = &command.ok_or("no command was recorded")?.argv;
    let ran: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    let is_it = line.split_once(" -- ").is_some_and(|(_, asked)| asked == ran.join(" "));
    if is_it { Ok(()) } else { Err(format!("{line:?} is not what was recorded: {ran:?}")) }
}

/// The lines from one prefix to another; and whether no more lines follow.
fn part(page: &str, source: &Source) -> Result<(Vec<String>, bool), String> {
    let lines: Vec<&str> = page.lines().collect();
    let find = |words: &Option<String>, after: usize, otherwise: usize| match words {
        None => Ok(otherwise),
        Some(words) => (after..lines.len())
            .find(|at| lines[*at].starts_with(words.as_str()))
            .ok_or_else(|| format!("no line begins with {words:?}")),
    };
    let from = find(&source.from, 0, 0)?;
    let to = find(&source.until, from + 1, lines.len())?;
    let mut shown: Vec<String> = lines[from..to].iter().map(|line| (*line).to_owned()).collect();
    while shown.last().is_some_and(String::is_empty) {
        shown.pop();
    }
    Ok((shown, to == lines.len()))
}

/// The output of `ls` for the unpacked recording.
fn listed(folders: &[&str], source: &Source) -> Vec<String> {
    let here = tempfile::tempdir().unwrap();
    let file = fs::File::open(place().join(&source.file)).unwrap();
    tar::Archive::new(zstd::Decoder::new(file).unwrap()).unpack(here.path().join("host")).unwrap();
    let ls = Command::new("ls")
        .arg("-m")
        .args(folders)
        .current_dir(here.path())
        .env("LC_ALL", "C")
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    String::from_utf8_lossy(&ls.stdout).lines().map(|line| line.trim_end().to_owned()).collect()
}
