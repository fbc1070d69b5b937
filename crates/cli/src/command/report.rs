//! `tickwheel report`.

use super::output::OutputFile;
use super::{Advance, Measuring};
use crate::Failure;
use std::time::Duration;
use tickwheel_cli::asked::{self, Asked};
use tickwheel_cli::report::{self, Options};
use tickwheel_cli::study::Configurations;
use tickwheel_cli::tick::Tick;

/// Writes a page with charts about a recorded workload, and about what it costs in several modes.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Report {
    /// Write the page into this file.
    #[arg(short, long, value_name = "OUT.html", value_parser = OutputFile::parser())]
    output: OutputFile,

    /// A mode whose inside is shown: one `hierarchical:BUCKETS` (a level) and one `hashed:BUCKETS`
    /// (in all).
    #[arg(
        long = "mode",
        value_name = "MODE",
        default_values = ["hierarchical:64", "hashed:512"],
        value_delimiter = ',',
    )]
    modes: Vec<Asked>,

    /// The length of a tick inside, 1us to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    tick: Tick,

    /// How late a timeout may be because of the tick, in the search for the recommendation.
    #[arg(long, value_name = "DURATION", default_value = "1ms",
          value_parser = super::choose::lateness)]
    max_lateness: Duration,

    #[command(flatten)]
    measuring: Measuring,
}

impl Report {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let file = &self.measuring.file;
        self.output.check_beside(file)?;
        let modes = asked::modes(&self.modes, super::say::<String>);
        let hashed = modes.iter().filter(|mode| mode.is_hashed()).count();
        if 1 < hashed.max(modes.len() - hashed) {
            let found = "found two modes of a kind, expected one hierarchical and one hashed mode";
            return Err(Failure::Input(found.into()));
        }
        let study = self.measuring.options(Configurations::Search(self.max_lateness));
        let options = Options { modes, tick: self.tick, study };
        let write = |trace, progress: Advance<'_>| report::report(trace, &options, progress);
        let (page, interrupt) = super::traced(file, write)?;
        super::warn_of_gaps(page.study());
        let page = page.to_string();
        let _held = interrupt.lock();
        self.output.write(|file| file.write_all(page.as_bytes()))
    }
}

const HELP: &str = "\
Examples:
  tickwheel report data/jobs-gaia.csv.gz -o report.html
  tickwheel report trace.csv -o report.html --max-lateness 100ms
  tickwheel generate cancelled | tickwheel report - -o report.html

The page needs nothing from the network.";
