//! Manual pages from what is written already: a page of the documentation, and the tool's own help.

use anyhow::{Context, Result};

/// The body of a manual page from Markdown: headings, paragraphs, indented code, lists and tables.
///
/// The first line, a title, is left out, since the page has its own.
pub(super) fn of_markdown(text: &str) -> String {
    let mut out = String::new();
    let (mut before, mut blank) = (Line::Blank, false);
    for line in text.lines().skip(1) {
        let kind = Line::of(line, before);
        if before == Line::Code && !matches!(kind, Line::Code | Line::Blank) {
            out += ".EE\n.RE\n";
        }
        match kind {
            // Whether the block is over is known by what follows.
            Line::Blank if before == Line::Code => {
                blank = true;
                continue;
            }
            Line::Blank => {}
            Line::Heading => {
                let level = if line.starts_with("###") { ".SS" } else { ".SH" };
                out += &format!("{level} {}\n", inline(line.trim_start_matches('#').trim()));
            }
            Line::Code => {
                if before != Line::Code {
                    out += ".PP\n.RS\n.EX\n";
                } else if blank {
                    out.push('\n');
                }
                out += &format!("{}\n", verbatim(line.trim_start()));
            }
            Line::Item => {
                let item = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                let item = item.strip_prefix("- ").unwrap_or(item).trim_start();
                out += &format!(".IP \\(bu 3\n{}\n", inline(item));
            }
            Line::Row => {
                let cells = cells(line);
                // The first row of a table is its heading, the second a rule.
                if before == Line::Row && !cells.iter().all(|cell| cell.trim_matches('-').is_empty()) {
                    let rest: Vec<_> = cells[1..].iter().filter(|cell| !cell.is_empty()).collect();
                    let middle = rest[..rest.len() - 1].iter().map(|cell| format!(" (default {cell})"));
                    let name = format!("{}{}", cells[0], middle.collect::<String>());
                    out += &format!(".TP\n{}\n{}\n", inline(&name), inline(rest[rest.len() - 1]));
                }
            }
            Line::Text => {
                if before == Line::Blank || before == Line::Code {
                    out += ".PP\n";
                }
                out += &format!("{}\n", inline(line.trim_start()));
            }
        }
        (before, blank) = (kind, false);
    }
    if before == Line::Code {
        out += ".EE\n.RE\n";
    }
    out
}

/// A manual page of the tool: `head`, and what it says of itself and of each of its commands.
///
/// # Errors
/// When the help cannot be had, or has another form.
pub(super) fn of_help(head: &str, help: impl Fn(&[&str]) -> Result<String>) -> Result<String> {
    let whole = help(&["--help"])?;
    let part = |name: &str| {
        let rest =
            whole.split_once(&format!("\n{name}:\n")).with_context(|| format!("the help has no {name}"))?.1;
        let end = rest.split("\n\n").next().unwrap_or(rest);
        anyhow::Ok(end.to_owned())
    };
    let commands = part("Commands")?;
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let mut page = head.to_owned();
    page += ".SH COMMANDS\n";
    for name in names.filter(|name| *name != "help") {
        let text = help(&["help", name])?;
        let text = text.split("\nExit codes:").next().unwrap_or(&text).trim_end();
        page += &format!(".SS {}\n.EX\n{}\n.EE\n", escape(name), lines(text));
    }
    page += &format!(".SH OPTIONS\n.EX\n{}\n.EE\n", lines(&part("Options")?));
    page += &format!(".SH EXIT STATUS\n.EX\n{}\n.EE\n", lines(part("Exit codes")?.trim_end()));
    page += ".SH SEE ALSO\n.BR stratalloc (7),\n.BR stratalloc.conf (5)\n";
    Ok(page)
}

/// Markdown without its marks.
pub(super) fn plain(text: &str) -> String {
    unlinked(text).replace(['`', '*'], "").replace("\\|", "|")
}

/// Lines of at most `width` bytes, broken at blanks.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + word.len() < width => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Blank,
    Heading,
    Code,
    Item,
    Row,
    Text,
}

impl Line {
    fn of(line: &str, before: Self) -> Self {
        let word = line.trim_start();
        let number = word.trim_start_matches(|c: char| c.is_ascii_digit());
        match word {
            "" => Self::Blank,
            _ if line.starts_with('#') => Self::Heading,
            _ if line.starts_with("    ") && matches!(before, Self::Blank | Self::Code) => Self::Code,
            _ if line.starts_with('|') => Self::Row,
            _ if word.starts_with("- ") || (number.len() < word.len() && number.starts_with(". ")) => {
                Self::Item
            }
            _ => Self::Text,
        }
    }
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim_matches('|').replace("\\|", "\0");
    row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// Words of a link without its target.
fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (start, words) = before.rsplit_once('[').unwrap_or((before, ""));
        out += start;
        out += words;
        rest = after.split_once(')').map_or("", |parts| parts.1);
    }
    out + rest
}

/// A line of text with bold for code and emphasis.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in unlinked(text).replace("**", "`").split('`').enumerate() {
        let part = escape(&part.replace("\\|", "|"));
        out += &if index % 2 == 1 && !part.is_empty() { format!("\\fB{part}\\fR") } else { part };
    }
    guarded(out)
}

/// Text as it stands, but for long lines, which are broken and keep their indentation.
fn lines(text: &str) -> String {
    let mut out = Vec::new();
    for line in text.lines() {
        let word = line.trim_start();
        let blanks = &line[..line.len() - word.len()];
        if line.len() <= 90 {
            out.push(verbatim(line));
        } else {
            out.extend(wrapped(word, 76).iter().map(|part| verbatim(&format!("{blanks}{part}"))));
        }
    }
    out.join("\n")
}

fn verbatim(line: &str) -> String {
    guarded(escape(line))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('~', "\\(ti").replace('^', "\\(ha")
}

/// A line that begins with a dot or a quote is no request.
fn guarded(line: String) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_requests() {
        let page = of_markdown(
            "# T\n\nA `b` and **c**.\n\n    x -y\n\n    .z\n\n## H\n\n- one\n  more\n\n| k | d | v |\n|---|---|---|\n| `a\\|b` | `1` | text |\n",
        );
        let expected = ".PP\nA \\fBb\\fR and \\fBc\\fR.\n.PP\n.RS\n.EX\nx \\-y\n\n\\&.z\n.EE\n.RE\n.SH H\n.IP \\(bu 3\none\nmore\n.TP\n\\fBa|b\\fR (default \\fB1\\fR)\ntext\n";
        assert_eq!(page, expected);
        assert_eq!(plain("a [b](c) `d\\|e`"), "a b d|e");
    }

    #[test]
    fn every_command_of_the_tool_is_on_its_page() {
        let help = |words: &[&str]| {
            let whole = "About.\n\nUsage: t C\n\nCommands:\n  stat  Prints\n  help  Helps\n\nOptions:\n  -h  Help\n\nExit codes:\n  0  done\n";
            let one = "Prints what is.\n\nUsage: t stat PID\n\nExit codes:\n  0  done\n";
            Ok(if words == ["--help"] { whole } else { one }.to_owned())
        };
        let page = of_help(".TH T 1\n", help).unwrap();
        let expected = ".TH T 1\n.SH COMMANDS\n.SS stat\n.EX\nPrints what is.\n\nUsage: t stat PID\n.EE\n.SH OPTIONS\n.EX\n  \\-h  Help\n.EE\n.SH EXIT STATUS\n.EX\n  0  done\n.EE\n.SH SEE ALSO\n";
        assert!(page.starts_with(expected), "{page}");
    }
}
