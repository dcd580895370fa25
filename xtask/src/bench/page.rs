//! What is shown of results: tables and plots, beside the file of results and in `docs`.

use super::results::Results;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Pages of `docs` with results in them.
const PAGES: [&str; 2] = ["performance.md", "mysql.md"];

/// Tables, and the plots below them.
#[derive(Default)]
pub(crate) struct Page {
    /// Markdown.
    pub(crate) text: String,
    /// In order.
    pub(crate) plots: Vec<Plot>,
}

/// A plot.
pub(crate) struct Plot {
    /// A word for its file.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) title: String,
    /// The picture.
    pub(crate) svg: String,
}

impl Page {
    /// Prints the tables, and writes them and the plots beside the results.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn save(&self, results: &Results) -> Result<()> {
        let text = results.preamble() + &self.text;
        print!("\n{text}");
        let tables = results.file().with_extension("md");
        let mut links = String::new();
        for plot in &self.plots {
            let file = tables.with_extension(format!("{}.svg", plot.name));
            write(&file, &plot.svg)?;
            links += &plot.link(&file.file_name().unwrap_or_default().to_string_lossy());
        }
        write(&tables, &(text + &links))
    }

    /// Puts the tables into the page of `docs` that has the marks of the bench, between them, and the plots into `docs/plots`.
    ///
    /// # Errors
    /// When there are no such marks, or a file cannot be written.
    pub(crate) fn publish(&self, bench: &str, results: &Results) -> Result<()> {
        let docs = workspace::root().join("docs");
        std::fs::create_dir_all(docs.join("plots"))?;
        let mut text = results.preamble() + &self.text;
        for plot in &self.plots {
            let file = format!("plots/{bench}-{}.svg", plot.name);
            write(&docs.join(&file), &plot.svg)?;
            text += &plot.link(&file);
        }
        for name in PAGES {
            let file = docs.join(name);
            if let Some(fresh) = replaced(&std::fs::read_to_string(&file)?, bench, &text) {
                return write(&file, &fresh);
            }
        }
        bail!("no page of {PAGES:?} has a line `<!-- {bench} -->` and one `<!-- end of {bench} -->`")
    }
}

impl Plot {
    fn link(&self, file: &str) -> String {
        format!("\n![{}]({file})\n", self.title)
    }
}

/// `page` with `text` between the marks of a bench; `None` where it has no marks.
fn replaced(page: &str, bench: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {bench} -->\n"), format!("<!-- end of {bench} -->\n"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{text}{end}{after}"))
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn only_what_stands_between_the_marks_of_a_bench_is_replaced() {
        let page = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n<!-- y -->\n<!-- end of y -->\n";
        let fresh = replaced(page, "x", "new\n").expect("marks");
        assert_eq!(fresh, page.replace("old", "new"));
        assert_eq!(replaced(&fresh, "x", "old\n").as_deref(), Some(page));
        assert_eq!(replaced(page, "z", "new\n"), None);
    }
}
