//! The report as one page that needs nothing else.

use crate::error::Result;
use crate::report::content::{self, Cell, FOOTNOTE, Grid, Pick};
use crate::report::units::clean;
use crate::report::{figure, words};
use crate::view::View;

const STYLE: &str = include_str!("style.css");

/// Several runs as a self-contained page: inline style and drawings, no outside reference, every string
/// escaped.
///
/// # Errors
/// Where a figure cannot be drawn.
pub fn page(views: &[View<'_>]) -> Result<String> {
    let names: Vec<String> = views.iter().map(|view| escape(&view.run.head.experiment)).collect();
    let link = |(at, name): (usize, &String)| format!("<li><a href=\"#run-{at}\">{name}</a></li>");
    let links: String = names.iter().enumerate().map(link).collect();
    let articles: Result<Vec<String>> =
        views.iter().enumerate().map(|(at, view)| article(at, view)).collect();
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>weir lab: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <nav><ul>{links}</ul></nav>\n{}</main>\n</body>\n</html>\n",
        names.join(", "),
        articles?.concat()
    ))
}

fn article(at: usize, view: &View<'_>) -> Result<String> {
    let (experiment, head) = (view.experiment, &view.run.head);
    let mut text = format!(
        "<article id=\"run-{at}\">\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n<dl>\n",
        escape(&head.experiment),
        escape(&words::sentence(view))
    );
    let asked = [
        ("Question", experiment.question),
        ("Paper", experiment.paper),
        ("Found then", experiment.found),
    ];
    text += &terms(asked.map(|(name, value)| (name, value.to_owned())));
    text += "</dl>\n";
    for warning in words::warnings(view) {
        text += &format!("<p class=\"warning\">{}</p>\n", escape(&warning));
    }
    if let Some(svg) = figure::svg(view)? {
        text += &format!("<figure>\n{svg}</figure>\n");
    }
    for grid in content::grids(view, &Pick::default()) {
        text += &table(&grid);
    }
    text += &table(&content::goals(view));
    text += &format!("<h2>How to read it</h2>\n<p>{}</p>\n", escape(experiment.notes));
    text += &table(&content::setup(view));
    text += "<h2>What made it</h2>\n<dl>\n";
    Ok(text + &terms(words::facts(head)) + "</dl>\n</article>\n")
}

fn terms<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let term =
        |(name, value): (&str, String)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(&value));
    pairs.into_iter().map(term).collect()
}

/// A table that scrolls by itself on a narrow screen; a figure's range is its title.
fn table(grid: &Grid) -> String {
    if grid.rows.is_empty() {
        return String::new();
    }
    let class = |at: usize| if at < grid.labels { " class=\"text\"" } else { "" };
    let cell = |(at, Cell { text, range }): (usize, &Cell)| {
        let (text, range) = (escape(text), escape(range));
        let title = if range.is_empty() { range } else { format!(" title=\"{range}\"") };
        format!("<td{}{title}>{text}</td>", class(at))
    };
    let head = grid.head.iter().enumerate();
    let head: String =
        head.map(|(at, name)| format!("<th{}>{}</th>", class(at), escape(name))).collect();
    let row = |row: &Vec<Cell>| {
        format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>())
    };
    let rows: String = grid.rows.iter().map(row).collect();
    let foot = if grid.is_marked() {
        format!("<p class=\"small\">{FOOTNOTE}</p>\n")
    } else {
        String::new()
    };
    format!(
        "<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\
         </tbody></table></div>\n{foot}",
        escape(&grid.title)
    )
}

/// Text that a browser shows as it is written, in an element or in a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
