//! `tickwheel replay`.

use super::Measuring;
use super::output::OutputFile;
use crate::Failure;
use clap::builder::TypedValueParser;
use std::error::Error;
use tickwheel_cli::asked::{self, Asked};
use tickwheel_cli::plot;
use tickwheel_cli::study::{Configurations, Study};
use tickwheel_cli::tick::Tick;

/// Runs a recorded workload through wheels of several modes and compares them.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Replay {
    /// The modes to run, with commas between them or each after a `--mode` of its own:
    /// `hierarchical:BUCKETS` (a level) or `hashed:BUCKETS` (in all).
    #[arg(
        long = "mode",
        value_name = "MODE",
        default_values = ["hierarchical:64", "hashed:512", "hashed:65536"],
        value_delimiter = ',',
    )]
    modes: Vec<Asked>,

    /// The length of a tick, 1us to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    tick: Tick,

    /// Stop a mode whose counted work costs more than this many times that of the cheapest mode;
    /// the others go on.
    #[arg(long, value_name = "TIMES", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    limit_slower: u32,

    #[command(flatten)]
    measuring: Measuring,

    /// Print one JSON object with all modes instead of the table.
    #[arg(long)]
    json: bool,

    /// Draw a picture as well; SVG or PNG, as the name ends. PNG needs a command that was built
    /// with the feature `png`.
    #[arg(long, value_name = "OUT.svg|OUT.png",
          value_parser = OutputFile::parser().try_map(picture))]
    plot: Option<OutputFile>,
}

impl Replay {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(plot) = &self.plot {
            plot.check_beside(&self.measuring.file)?;
        }
        let given = Configurations::Given {
            modes: asked::modes(&self.modes, super::say::<String>),
            tick: self.tick,
        };
        let mut options = self.measuring.options(given);
        options.slower = self.limit_slower;
        let (study, interrupt) = super::studied(&self.measuring.file, &options)?;
        super::print_study(&study, self.json)?;
        if let Some(plot) = &self.plot {
            let _held = interrupt.lock();
            let picture = draw(&study, plot).map_err(|error| plot.failure(&*error))?;
            plot.write(|file| file.write_all(&picture))?;
        }
        Ok(())
    }
}

/// Returns the name of a file if it ends like that of a picture.
fn picture(file: OutputFile) -> Result<OutputFile, &'static str> {
    match file.extension().as_deref() {
        Some("svg") => Ok(file),
        Some("png") if cfg!(feature = "png") => Ok(file),
        Some("png") => Err("this command was built without the feature `png`: expected a name \
                            that ends in .svg"),
        _ => Err("expected a name that ends in .svg or .png"),
    }
}

/// Draws `study` as the name of the file says.
fn draw(study: &Study, file: &OutputFile) -> Result<Vec<u8>, Box<dyn Error>> {
    match file.extension().as_deref() {
        #[cfg(feature = "png")]
        Some("png") => plot::png(study),
        _ => Ok(plot::svg(study).into()),
    }
}

const HELP: &str = "\
Examples:
  tickwheel replay data/jobs-gaia.csv.gz
  tickwheel replay trace.csv --mode hierarchical:256 --mode hashed:4096 --tick 10ms
  tickwheel replay trace.csv.gz --plot trace.svg
  zcat trace.csv.gz | tickwheel replay - --json

A trace has a line for each operation, in the order of time:
  time_ms,op,key,delay_ms
  0,schedule,17,30000
  250,reschedule,17,30000
  400,cancel,17,";
