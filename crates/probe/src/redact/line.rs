//! Builds a line of words, and hides secrets in it.

use super::names::{self, Program, is_bare_name, is_joint, is_scheme, is_secret_name, is_setting, is_sign};
use super::{HIDDEN, logins, tokens};
use whyslow_model::table::BETWEEN_ARGUMENTS;

/// Characters between words.
const BLANKS: [char; 2] = [' ', BETWEEN_ARGUMENTS];

/// The line so far, and what is expected of the next words.
#[derive(Default)]
pub(super) struct Line {
    pub text: String,
    /// The character before the next word.
    between: char,
    /// So many words are shown before the hidden ones.
    tells: usize,
    /// So many words are values that must not be shown.
    hides: usize,
    /// So many words may come before the BY of an IDENTIFIED.
    identified: usize,
    /// The last word named a secret: a sign may follow, and then the value.
    is_named: bool,
    /// The last program with options of its own for secrets.
    program: Option<&'static Program>,
    /// For this program a colon follows a host, not a user.
    is_copier: bool,
}

impl Line {
    fn push(&mut self, word: &str) {
        if !self.text.is_empty() {
            self.text.push(self.between);
        }
        self.text.push_str(word);
    }

    fn expect(&mut self, (tells, hides): (usize, usize)) {
        (self.tells, self.hides) = (tells, hides);
    }

    /// One argument: a word, or a command or a header with blanks in it.
    pub fn argument(&mut self, argument: &str) {
        let argument = argument.trim_matches(BLANKS);
        if argument.is_empty() {
            return;
        }
        self.between = BETWEEN_ARGUMENTS;
        if self.hides > 0 && self.tells == 0 {
            return self.hidden(argument);
        }
        // A name and a value with blanks, "Authorization: Bearer x": the rest of the argument is the value. Not in the first argument: that
        // is the program, or a title.
        let head = argument.split(BLANKS).next().unwrap_or_default();
        let is_value = head.len() < argument.len() && !self.text.is_empty();
        if let Some(at) = secret_from(head).filter(|_| is_value) {
            let blank = if at == head.len() { " " } else { "" };
            self.push(&format!("{}{blank}{HIDDEN}", tokens::hide(head.get(..at).unwrap_or_default())));
            return;
        }
        let mut rest = argument;
        while !rest.is_empty() {
            let (word, after) = next_word(rest);
            self.word(word);
            rest = after.trim_start_matches(BLANKS);
            let blanks = after.get(..after.len() - rest.len()).unwrap_or_default();
            self.between = if blanks.contains(BETWEEN_ARGUMENTS) { BETWEEN_ARGUMENTS } else { ' ' };
        }
    }

    /// All of this is a value, or words between the name and the value: "PASSWORD FOR joe = 'x'", "Authorization: Bearer x".
    fn hidden(&mut self, value: &str) {
        if is_sign(value) {
            return self.push(value);
        }
        if value.eq_ignore_ascii_case("for") {
            self.tells = 1;
            return self.push(value);
        }
        let is_between = is_scheme(value) || is_bare_name(value) || is_joint(value);
        self.hides -= usize::from(!is_between);
        self.push(HIDDEN);
    }

    fn word(&mut self, word: &str) {
        if self.hides > 0 && self.tells == 0 {
            return self.hidden(word);
        }
        self.tells = self.tells.saturating_sub(usize::from(!word.starts_with('-')));
        let was_named = std::mem::take(&mut self.is_named);
        if was_named && word.starts_with(['=', ':']) {
            // "password = x", "password =x"
            let sign = word.find(|c| !matches!(c, '=' | ':' | '>')).unwrap_or(word.len());
            self.expect((0, usize::from(sign == word.len())));
            let hidden = if self.hides > 0 { "" } else { HIDDEN };
            return self.push(&format!("{}{hidden}", word.get(..sign).unwrap_or_default()));
        }
        if self.text.is_empty() {
            self.is_copier = logins::is_copier(word);
        }
        if let Some(at) = secret_from(word) {
            let is_next = at == word.len();
            let hidden = if is_next { "" } else { HIDDEN };
            self.expect((0, usize::from(is_next)));
            return self.push(&format!("{}{hidden}", tokens::hide(word.get(..at).unwrap_or_default())));
        }
        if let Some(known) = self.program.and_then(|program| hidden_by(program, word)) {
            return self.push(&known);
        }
        self.announces(word);
        self.push(&tokens::hide(&logins::without(word, !self.is_copier)));
    }

    /// What a word says about the words that follow.
    fn announces(&mut self, word: &str) {
        let is_first = self.text.is_empty();
        let program = names::program(word);
        self.program = program.or(self.program);
        if let Some(first) = program.and_then(Program::first) {
            return self.expect(first);
        }
        let bare = word.trim_matches(|c| "\"'{}[](),\\".contains(c));
        self.is_named = !is_first && is_secret_name(bare);
        if let Some(next) = self.program.and_then(|program| program.next(word)) {
            return self.expect(next);
        }
        let is_option = word.starts_with('-') && !word.contains(['=', ':']) && is_secret_name(word);
        // A program whose name is "reset-password" is no setting; a title may begin with "PASSWORD".
        let is_setting = !is_first && program.is_none() && is_setting(word);
        // "IDENTIFIED BY 'x'", "IDENTIFIED WITH plugin AS 'x'"
        let is_identified = self.identified > 0 && is_joint(word);
        self.identified =
            if word.eq_ignore_ascii_case("identified") { 3 } else { self.identified.saturating_sub(1) };
        if is_option || is_bare_name(word) || is_setting || is_identified {
            self.expect((0, 1));
        }
    }
}

/// A word of a program that has its own form for secrets.
fn hidden_by(program: &Program, word: &str) -> Option<String> {
    let attached = program.attached(word).map(|option| format!("{option}{HIDDEN}"));
    attached.or_else(|| logins::at_database(word).filter(|_| program.logs_in && !word.starts_with('-')))
}

/// Up to the next blank outside quotes. A quote that is not closed ends with the argument.
fn next_word(text: &str) -> (&str, &str) {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open && before != '\\' => quote = None,
            Some(_) => {}
            // A quote within a word is an apostrophe, unless a value may begin there.
            None if matches!(c, '\'' | '"')
                && (text.starts_with('-') || before == BETWEEN_ARGUMENTS || "=: ,(/@>$".contains(before)) =>
            {
                quote = Some(c);
            }
            None if BLANKS.contains(&c) && before != '\\' => return text.split_at(at),
            None => {}
        }
        before = c;
    }
    (text, "")
}

/// Where the value of a secret begins in a word: after a separator whose name says so. The end of the word: the value is the next word.
fn secret_from(word: &str) -> Option<usize> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    word.char_indices().filter(|(_, c)| matches!(c, '=' | ':' | '(')).find_map(|(at, c)| {
        let before = word.get(..at)?.trim_end_matches(['"', '\'', ']', '\\']);
        let from = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_name(*c))
            .last()
            .map_or(before.len(), |(at, _)| at);
        let name = before.get(from..)?;
        let is_environment = c == '=' && names::is_environment(name) && from == 0;
        // "https://", "pass::prompt": no value.
        let value = word.get(at + 1..)?;
        let is_value = !(c == ':' && (value.starts_with(':') || value.starts_with("//")));
        // "PASSWORD('x')": for a function the whole name must be the secret's name.
        let is_secret = if c == '(' { is_bare_name(name) } else { is_secret_name(name) };
        (is_value && (is_secret || is_environment)).then_some(at + 1)
    })
}
