//! `whyslow man`: the man page, made from the texts of the help.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_mangen::{Man, roff::Roff, roff::roman};

use crate::cli::{Cli, EXAMPLES, STATUS};
use crate::out::say;
use crate::outcome::Outcome;

/// Prints whyslow(1) as roff.
pub fn run(out: &mut dyn Write) -> Result<Outcome> {
    let mut command = Cli::command().term_width(72);
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    // One page for all verbs: a reader needs no second page for a verb.
    for verb in command.get_subcommands() {
        section(&mut page, &format!("whyslow {}", verb.get_name()), &verb.clone().render_help().to_string())?;
    }
    section(&mut page, "EXIT STATUS", body(STATUS))?;
    section(&mut page, "EXAMPLES", body(EXAMPLES))?;
    say(out, &String::from_utf8_lossy(&page))?;
    Ok(Outcome::Quiet)
}

/// The text below the heading that it has in the help.
fn body(text: &str) -> &str {
    text.split_once('\n').map_or(text, |(_, body)| body)
}

fn section(page: &mut Vec<u8>, title: &str, text: &str) -> Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]).control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.to_writer(page)?;
    Ok(())
}
