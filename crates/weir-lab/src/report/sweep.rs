//! A sweep of offered rates, as the reports see it.

use super::ReportError;
use super::content::{Grid, Row, packets_accounted, tables};
use super::plot::plot_svg;
use super::sentence::sentence;
use super::units::{clean, plural, rate};
use super::view::{Figure, View};
use crate::results::{Experiment, ModeSetup, Workload};

/// What the words of the tables mean.
const HOW_TO_READ: &str = "\
<p>Every packet that is offered ends in exactly one place. A <dfn>NIC drop</dfn> is lost at the \
full receive ring and costs the tested CPU nothing; a <dfn>discarded</dfn> packet is dropped at \
weir&#39;s gate, before the kernel builds anything for it; a <dfn>late drop</dfn> is lost in the \
backlog or at the full socket, after the CPU has done most of its work for nothing; the others \
are <dfn>delivered</dfn>.</p>\
<p>The <dfn>MLFRR</dfn> (maximum loss-free receive rate) is the highest offered rate with at \
most 0.5&nbsp;% loss (PDR); <dfn>NDR</dfn> is the highest without any. <dfn>Retained</dfn> is \
what is delivered at the highest offered rate as a share of the mode&#39;s own peak: near 0 it \
is receive livelock, 100&nbsp;% is ideal. <dfn>Age</dfn> is the time from a packet&#39;s sending \
to its delivery. Compare modes within one run; absolute figures belong to this machine.</p>";

impl View for Experiment {
    fn workload(&self) -> String {
        workload_line(&self.workload)
    }

    fn tables(&self) -> Vec<Grid> {
        tables(self)
    }

    fn accounting(&self) -> String {
        let ledgers = self.trials.iter().map(|trial| &trial.ledger);
        packets_accounted(ledgers.map(|ledger| (ledger.offered, ledger.unaccounted)))
    }

    fn sentence(&self) -> String {
        sentence(self)
    }

    fn figure(&self) -> Result<Option<Figure>, ReportError> {
        Ok(Some(Figure { svg: plot_svg(self)?, label: "Delivered by offered rate." }))
    }

    fn how_to_read(&self) -> &'static str {
        HOW_TO_READ
    }

    fn places(&self) -> Option<Grid> {
        places(self.setup.iter().map(|(mode, setup)| (mode.to_string(), setup)))
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        workload_facts(&self.workload)
    }
}

/// The packets and the application, in one line.
pub(super) fn workload_line(workload: &Workload) -> String {
    format!(
        "{} of {}, {}-byte payload; receive buffer {} bytes, {} here",
        workload.application,
        workload.packets,
        workload.payload_bytes,
        workload.rcvbuf_bytes,
        plural(workload.queue_depth_packets as usize, "packet")
    )
}

/// What ran on which CPU.
pub(super) fn places<'a>(setups: impl Iterator<Item = (String, &'a ModeSetup)>) -> Option<Grid> {
    let rows: Vec<Row> = setups
        .map(|(mode, setup)| {
            Row::Cells(vec![
                mode,
                clean(&setup.driver_poll),
                clean(&setup.protocol),
                clean(&setup.gate),
                clean(&setup.application),
                clean(&setup.attach),
                if setup.gro { "on" } else { "off" }.to_owned(),
                clean(&setup.rps_cpus),
            ])
        })
        .collect();
    let head = ["mode", "driver poll", "IP and UDP", "gate", "application", "XDP", "GRO", "RPS"]
        .map(str::to_owned)
        .into();
    (!rows.is_empty()).then_some(Grid {
        title: "What ran where",
        note: "The CPU and context of each part, and the receiving interface's settings.",
        head,
        rows,
        text_columns: 8,
        footnotes: Vec::new(),
    })
}

/// Names and facts of the packets and the application.
pub(super) fn workload_facts(workload: &Workload) -> Vec<(&'static str, String)> {
    vec![
        (
            "Application",
            format!(
                "{}, {}, {}-byte payload",
                workload.application, workload.packets, workload.payload_bytes
            ),
        ),
        (
            "Receive buffer",
            format!(
                "{} bytes, which hold {} on this path",
                workload.rcvbuf_bytes,
                plural(workload.queue_depth_packets as usize, "packet")
            ),
        ),
        (
            "Generator's top",
            workload
                .generator_top_pps
                .map_or("not tried".to_owned(), |top| format!("{} packets/s", rate(top))),
        ),
    ]
}
