//! A shell line, split into its simple commands, also those in `$(...)` and behind `timeout 5`, and the files that it writes.

/// One program with its arguments, without quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// The program first.
    pub words: Vec<String>,
    /// Files that receive its output.
    pub writes: Vec<String>,
}

/// Programs that run another program: the place of that program among their words, counted from the end of their options.
const WRAPPERS: [(&str, usize); 2] = [("timeout", 2), ("nsenter", 4)];
/// Words of the shell's grammar, not programs.
const KEYWORDS: [&str; 4] = ["do", "then", "else", "!"];
/// A file that discards its output.
const NOWHERE: &str = "/dev/null";

/// The commands of a line.
pub fn commands(line: &str) -> Result<Vec<Simple>, String> {
    let mut reader = Reader { rest: line, ..Reader::default() };
    reader.read().map_err(|why| format!("{why}: {line}"))?;
    let mut found = Vec::new();
    for simple in reader.done {
        without_grammar(simple, &mut found)?;
    }
    Ok(found)
}

/// Names of variables that `for` sets in a line.
pub fn variables(line: &str) -> Vec<&str> {
    let after = line.split("for ").skip(1);
    after.filter_map(|rest| rest.split_once(" in ")).map(|(name, _)| name).collect()
}

fn without_grammar(mut simple: Simple, found: &mut Vec<Simple>) -> Result<(), String> {
    while simple.words.first().is_some_and(|word| KEYWORDS.contains(&word.as_str())) {
        simple.words.remove(0);
    }
    let Some(first) = simple.words.first().cloned() else { return Ok(()) };
    if first == "for" || (first == "done" && simple.words.len() == 1) {
        // The words of `for` are no program; the output file of the loop is a redirection of `done`.
        let writes = std::mem::take(&mut simple.writes);
        return if writes.is_empty() { Ok(()) } else { Err(format!("a loop writes to {writes:?}")) };
    }
    if let Some((_, behind)) = WRAPPERS.iter().find(|(name, _)| *name == first) {
        let inner = simple.words.split_off((*behind).min(simple.words.len()));
        found.push(simple);
        return without_grammar(Simple { words: inner, writes: Vec::new() }, found);
    }
    if let [shell, option, line] = &simple.words[..]
        && (shell, option) == (&"sh".to_owned(), &"-c".to_owned())
    {
        found.extend(commands(line)?);
    }
    found.push(simple);
    Ok(())
}

#[derive(Default)]
struct Reader<'l> {
    rest: &'l str,
    word: Option<String>,
    now: Simple,
    done: Vec<Simple>,
    /// Whether the next word is a file that the command writes.
    is_target: bool,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(c) = self.next() {
            match c {
                ' ' => self.end_word(),
                ';' | '|' | '&' | '\n' => self.end_command(),
                '>' => self.redirect(),
                '<' => return Err("it reads a file by `<`".to_owned()),
                '\'' => {
                    let text = self.until('\'')?;
                    self.push(&text);
                }
                '"' => self.double()?,
                '\\' => {
                    let escaped = self.next().ok_or("it ends in a backslash")?;
                    self.push(escaped.encode_utf8(&mut [0; 4]));
                }
                '`' => return Err("it has backticks".to_owned()),
                '$' => self.dollar(true)?,
                c => self.push(c.encode_utf8(&mut [0; 4])),
            }
        }
        self.end_command();
        if self.is_target { Err("nothing follows `>`".to_owned()) } else { Ok(()) }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn push(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn until(&mut self, end: char) -> Result<String, String> {
        let (text, rest) = self.rest.split_once(end).ok_or_else(|| format!("a {end} is not closed"))?;
        let text = text.to_owned();
        self.rest = rest;
        Ok(text)
    }

    fn double(&mut self) -> Result<(), String> {
        self.push("");
        loop {
            match self.next().ok_or("a \" is not closed")? {
                '"' => return Ok(()),
                '$' => self.dollar(false)?,
                '\\' => {
                    let escaped = self.next().ok_or("it ends in a backslash")?;
                    self.push(escaped.encode_utf8(&mut [0; 4]));
                }
                c => self.push(c.encode_utf8(&mut [0; 4])),
            }
        }
    }

    fn dollar(&mut self, is_bare: bool) -> Result<(), String> {
        if self.rest.starts_with('(') {
            let end = self.rest.find(')').ok_or("a $( is not closed")?;
            let inner = self.rest[1..end].to_owned();
            self.rest = &self.rest[end + 1..];
            self.done.extend(commands(&inner)?);
            self.push("$()");
        } else if is_bare && self.rest.starts_with('\'') {
            self.next();
            self.ansi()?;
        } else {
            self.push("$");
        }
        Ok(())
    }

    /// `$'...'`: only its end matters, not the meaning of its escapes.
    fn ansi(&mut self) -> Result<(), String> {
        loop {
            match self.next().ok_or("a $' is not closed")? {
                '\'' => return Ok(()),
                '\\' => drop(self.next()),
                c => self.push(c.encode_utf8(&mut [0; 4])),
            }
        }
    }

    fn redirect(&mut self) {
        // The number of a descriptor stands right before it.
        let is_number = |word: &String| word.chars().all(|c| c.is_ascii_digit());
        self.word.take_if(|word| is_number(word));
        self.end_word();
        self.rest = self.rest.trim_start_matches(['>', ' ']);
        if let Some(to) = self.rest.strip_prefix('&') {
            self.rest = to.trim_start_matches(|c: char| c.is_ascii_digit());
        } else {
            self.is_target = true;
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match std::mem::take(&mut self.is_target) {
            true if word == NOWHERE => {}
            true => self.now.writes.push(word),
            false => self.now.words.push(word),
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        let simple = std::mem::take(&mut self.now);
        if !simple.words.is_empty() || !simple.writes.is_empty() {
            self.done.push(simple);
        }
    }
}

#[cfg(test)]
fn short(line: &str) -> Vec<String> {
    let shown = |simple: Simple| match simple.writes.join(",") {
        none if none.is_empty() => simple.words.join(" "),
        files => format!("{} -> {files}", simple.words.join(" ")),
    };
    commands(line).unwrap().into_iter().map(shown).collect()
}

#[test]
fn lines_are_taken_apart_as_a_shell_does() {
    assert_eq!(short("cat 'a b' | sort -rn | head"), ["cat a b", "sort -rn", "head"]);
    assert_eq!(short("echo '1 2' > /sys/x; cd y && cat z"), ["echo 1 2 -> /sys/x", "cd y", "cat z"]);
    assert_eq!(short("find a 2>/dev/null | wc -l 2>&1"), ["find a", "wc -l"]);
    assert_eq!(short("timeout 5 strace -p 7 2>&1 | head"), ["timeout 5", "strace -p 7", "head"]);
    assert_eq!(short("nsenter -n -t 7 ss -l"), ["nsenter -n -t 7", "ss -l"]);
    assert_eq!(short("for f in /a*; do echo 1 > $f; done"), ["echo 1 -> $f"]);
    assert_eq!(short("echo \"$(ls $p | wc -l) $(cat $q)\""), ["ls $p", "wc -l", "cat $q", "echo $() $()"]);
    assert_eq!(short(r"echo 1 > $'/a; reboot\x1b\'/b'"), ["echo 1 -> /a; reboot1b/b"]);
    assert_eq!(
        short("sh -c 'exec 3>/dev/x; reboot'"),
        ["exec -> /dev/x", "reboot", "sh -c exec 3>/dev/x; reboot"]
    );
    for torn in ["cat 'a", "cat \"a", "cat $(a", "cat <a", "cat `a`", "echo a >"] {
        assert!(commands(torn).is_err(), "{torn}");
    }
}
