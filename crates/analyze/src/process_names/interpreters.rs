//! Interpreters: which of their arguments is the program that they run.

/// What an interpreter runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Script<'l> {
    /// A file.
    File(&'l str),
    /// A module or an archive, with the option that says so.
    Named(&'static str, &'l str),
    /// Code that is an argument itself, and is not shown: it may be long, and contain anything.
    Code(&'static str),
}

/// An interpreter and its options, as in its manual.
pub(super) struct Interpreter {
    /// Names of the program, without version.
    names: &'static [&'static str],
    /// Short options whose argument is code.
    code: &'static str,
    /// Short options that mean that there is no script: the words after them are arguments for what is read from the input.
    reads: &'static str,
    /// Short options that take an argument: the rest of the word, or the next one.
    takes: &'static str,
    /// Short options behind which the rest of the word is their argument, if there is any.
    attached: &'static str,
    /// Options of whole words whose argument is the next word.
    words: &'static [&'static str],
    /// ... with what is run as the argument.
    runs: &'static [&'static str],
    /// ... with the file that is run as the argument.
    files: &'static [&'static str],
    /// ... with code as the argument.
    long_code: &'static [&'static str],
    /// Options of several letters may have a single "-", too.
    has_long_with_one: bool,
    /// The names of its first thread.
    pub threads: &'static [&'static str],
}

const PLAIN: Interpreter = Interpreter {
    names: &[],
    code: "",
    reads: "",
    takes: "",
    attached: "",
    words: &[],
    runs: &[],
    files: &[],
    long_code: &[],
    has_long_with_one: false,
    threads: &[],
};

const ALL: [Interpreter; 8] = [
    Interpreter {
        names: &["python", "pypy"],
        code: "c",
        takes: "WXQ",
        words: &["--check-hash-based-pycs"],
        runs: &["-m"],
        ..PLAIN
    },
    Interpreter { names: &["perl"], code: "eE", takes: "I", attached: "MmiFClxdD0V", ..PLAIN },
    Interpreter {
        names: &["ruby", "jruby", "truffleruby"],
        code: "e",
        takes: "rICEX",
        attached: "WKTFi0x",
        ..PLAIN
    },
    Interpreter {
        names: &["node", "nodejs"],
        code: "ep",
        takes: "rC",
        words: &[
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "--conditions",
            "--title",
            "--env-file",
        ],
        long_code: &["--eval", "--print"],
        threads: &["MainThread", "node-MainThread"],
        ..PLAIN
    },
    Interpreter {
        names: &["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"],
        reads: "s",
        code: "c",
        takes: "oO",
        words: &["--rcfile", "--init-file"],
        ..PLAIN
    },
    Interpreter {
        names: &["php"],
        code: "rBRE",
        takes: "dczS",
        files: &["-f", "-F", "--file", "--process-file"],
        ..PLAIN
    },
    Interpreter {
        names: &["java"],
        words: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--upgrade-module-path",
            "--add-modules",
            "--add-opens",
            "--add-exports",
            "--add-reads",
            "--enable-native-access",
            "--source",
            "--limit-modules",
            "--patch-module",
            "--describe-module",
        ],
        runs: &["-jar", "-m", "--module"],
        has_long_with_one: true,
        ..PLAIN
    },
    Interpreter { names: &["lua", "luajit"], code: "e", takes: "l", ..PLAIN },
];

impl Interpreter {
    /// By the program's name: "python3.12", "php8.2".
    pub fn called(name: &str) -> Option<&'static Self> {
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        ALL.iter().find(|one| one.names.contains(&plain))
    }

    /// The interpreter is a shell: it reads commands from its input.
    pub fn is_shell(&self) -> bool {
        !self.reads.is_empty()
    }

    /// The script that these arguments name; `None`: the interpreter reads from its input, or that is not known.
    pub fn script<'l>(&self, mut words: impl Iterator<Item = &'l str>) -> Option<Script<'l>> {
        let mut reads = false;
        while let Some(word) = words.next() {
            match self.kind(word) {
                WordKind::Code(option) => return Some(Script::Code(option)),
                WordKind::Runs(option) => {
                    return words
                        .next()
                        .filter(|what| is_whole(what))
                        .map(|what| Script::Named(option, what));
                }
                WordKind::File => return words.next().filter(|what| is_whole(what)).map(Script::File),
                WordKind::Takes => drop(words.next()),
                WordKind::Flag => {}
                WordKind::Reads => reads = true,
                WordKind::LastFlag | WordKind::Script if reads => return None,
                WordKind::LastFlag => return words.next().filter(|what| is_whole(what)).map(Script::File),
                WordKind::Script if is_whole(word) => return Some(Script::File(word)),
                WordKind::Script => return None,
            }
        }
        None
    }

    fn kind(&self, word: &str) -> WordKind {
        let is_in = |all: &[&'static str]| all.iter().copied().find(|option| *option == word);
        if let Some(option) = is_in(self.runs) {
            return WordKind::Runs(option);
        }
        if let Some(option) = is_in(self.long_code) {
            return WordKind::Code(option);
        }
        if is_in(self.files).is_some() {
            return WordKind::File;
        }
        match word {
            "--" => WordKind::LastFlag,
            // Standard input.
            "-" => WordKind::Script,
            _ if is_in(self.words).is_some() => WordKind::Takes,
            // A file of arguments for java.
            _ if self.has_long_with_one && word.starts_with(['-', '@']) => WordKind::Flag,
            _ if word.starts_with("--") => WordKind::Flag,
            _ if word.starts_with('-') || word.starts_with('+') => self.cluster(word),
            _ => WordKind::Script,
        }
    }

    /// Short options in one word.
    fn cluster(&self, word: &str) -> WordKind {
        let letters = word.get(1..).unwrap_or_default();
        let mut kind = WordKind::Flag;
        for (at, letter) in letters.char_indices() {
            let is_last = at + letter.len_utf8() == letters.len();
            if self.code.contains(letter) {
                return WordKind::Code(code_option(letter));
            }
            if self.runs.contains(&"-m") && letter == 'm' && is_last {
                return WordKind::Runs("-m");
            }
            if self.takes.contains(letter) {
                return if is_last { WordKind::Takes } else { WordKind::Flag };
            }
            if self.reads.contains(letter) && word.starts_with('-') {
                kind = WordKind::Reads;
            }
            if self.attached.contains(letter) {
                return WordKind::Flag;
            }
        }
        kind
    }
}

enum WordKind {
    Code(&'static str),
    Runs(&'static str),
    File,
    Takes,
    Flag,
    LastFlag,
    Reads,
    Script,
}

fn code_option(letter: char) -> &'static str {
    match letter {
        'c' => "-c",
        'e' | 'E' => "-e",
        'p' => "-p",
        _ => "-r",
    }
}

/// The word is whole: not cut off, not hidden, and not standard input.
fn is_whole(word: &str) -> bool {
    !matches!(word, "..." | "***" | "-")
}
