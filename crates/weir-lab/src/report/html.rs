//! The report as one page that needs nothing else.

use crate::error::Result;
use crate::report::content::{self, Cell, FOOTNOTE, Grid};
use crate::report::units::clean;
use crate::report::{figure, words};
use crate::view::View;

const STYLE: &str = include_str!("style.css");

/// Several runs as a self-contained page: inline style and drawings, no outside reference, every string
/// escaped.
pub fn page(views: &[View<'_>]) -> Result<String> {
    let (mut links, mut articles) = (String::new(), String::new());
    for (at, view) in views.iter().enumerate() {
        let name = escape(&view.run.head.experiment);
        links += &format!("<li><a href=\"#run-{at}\">{name}</a></li>");
        let sentence = escape(&words::sentence(view));
        let figure = figure::svg(view)?.map(|svg| format!("<figure>\n{svg}</figure>\n"));
        articles += &format!(
            "<article id=\"run-{at}\">\n<h1>{name}</h1>\n<p class=\"lead\">{sentence}</p>\n{}{}</article>\n",
            figure.unwrap_or_default(),
            content::whole(view).iter().map(table).collect::<String>()
        );
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>weir lab</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <nav><ul>{links}</ul></nav>\n{articles}</main>\n</body>\n</html>\n"
    ))
}

/// A table that scrolls by itself on a narrow screen; a figure's range is its title.
fn table(grid: &Grid) -> String {
    let row = |cells: &Vec<Cell>, tag: &str| {
        let mut text = String::from("<tr>");
        for (at, Cell { text: figure, range }) in cells.iter().enumerate() {
            let class = if grid.is_text(at) { " class=\"text\"" } else { "" };
            let title =
                if range.is_empty() { "" } else { &format!(" title=\"{}\"", escape(range)) };
            text += &format!("<{tag}{class}{title}>{}</{tag}>", escape(figure));
        }
        text + "</tr>\n"
    };
    if grid.rows.is_empty() {
        return String::new();
    }
    let rows: String = grid.rows.iter().map(|cells| row(cells, "td")).collect();
    let note = if grid.is_marked() { FOOTNOTE } else { "" };
    format!(
        "<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>\n{rows}</tbody></table></div>\n\
         <p class=\"small\">{note}</p>\n",
        escape(&grid.title),
        row(&grid.head, "th")
    )
}

/// Text that a browser shows as it is written, in an element or in a quoted attribute.
fn escape(text: &str) -> String {
    let escaped = clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', "&#39;")
}
