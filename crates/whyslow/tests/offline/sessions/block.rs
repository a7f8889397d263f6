//! Fenced blocks of a document, and the comment above a block that names the source of its text.

/// The start of the comment above a block: `<!-- session: FILE; from "WORDS"; until "WORDS" -->`.
const MARK: &str = "<!-- session: ";
const FENCE: &str = "```";

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Line number of its first line within the fence, from 0.
    pub at: usize,
    /// The language that the fence names.
    pub language: String,
    pub lines: Vec<String>,
    /// The source of its text, if a comment names one.
    pub source: Option<Source>,
}

/// The source of a session's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// A recording beside the test, or a file of the repository (with a slash).
    pub file: String,
    /// The start of the first line shown, if it is not the first line of the report.
    pub from: Option<String>,
    /// The start of the first line that is left out, if any.
    pub until: Option<String>,
}

impl Source {
    fn read(comment: &str) -> Option<Self> {
        let body = comment.strip_prefix(MARK)?.strip_suffix(" -->")?;
        let mut parts = body.split("; ");
        let mut source = Source { file: parts.next()?.to_owned(), from: None, until: None };
        for part in parts {
            let (word, quoted) = part.split_once(' ')?;
            let text = quoted.strip_prefix('"')?.strip_suffix('"')?.to_owned();
            match word {
                "from" => source.from = Some(text),
                "until" => source.until = Some(text),
                _ => return None,
            }
        }
        Some(source)
    }
}

/// A block, and the right lines for it.
pub type Other = (Block, Vec<String>);

/// All blocks of a document.
pub fn blocks(document: &str) -> Vec<Block> {
    let (mut found, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    let mut above = "";
    for (at, line) in document.lines().enumerate() {
        match (open.take(), line.strip_prefix(FENCE)) {
            (None, Some(language)) => {
                let source = above.starts_with(MARK).then(|| {
                    Source::read(above).unwrap_or_else(|| panic!("cannot read the comment {above:?}"))
                });
                open = Some(Block { at: at + 1, language: language.to_owned(), lines: Vec::new(), source });
            }
            (Some(block), Some(_)) => found.push(block),
            (Some(mut block), None) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
        above = line;
    }
    assert!(open.is_none(), "a fence is not closed: {open:?}");
    found
}

/// The document with other lines in these blocks.
pub fn rewritten(document: &str, texts: &[Other]) -> String {
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    let mut last_first: Vec<&Other> = texts.iter().collect();
    last_first.sort_by_key(|(block, _)| std::cmp::Reverse(block.at));
    for (block, text) in last_first {
        lines.splice(block.at..block.at + block.lines.len(), text.iter().cloned());
    }
    lines.join("\n") + "\n"
}

#[test]
fn blocks_are_read_and_put_back() {
    let text =
        "a\n<!-- session: x.why; from \"b c\"; until \"d\" -->\n```\n$ one\ntwo\n```\nb\n\n```sh\nx\n```\n";
    let found = blocks(text);
    let source = Source { file: "x.why".into(), from: Some("b c".into()), until: Some("d".into()) };
    let first = Block {
        at: 3,
        language: String::new(),
        lines: vec!["$ one".into(), "two".into()],
        source: Some(source),
    };
    assert_eq!(found[0], first);
    assert_eq!((found.len(), found[1].language.as_str(), &found[1].source), (2, "sh", &None));
    let same: Vec<_> = found.iter().map(|block| (block.clone(), block.lines.clone())).collect();
    assert_eq!(rewritten(text, &same), text);
    let other = rewritten(text, &[(first, vec!["1".into(), "2".into(), "3".into()])]);
    assert_eq!(other, text.replace("$ one\ntwo\n", "1\n2\n3\n"));
}
