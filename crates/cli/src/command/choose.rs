//! `tickwheel choose`.

use super::Measuring;
use crate::Failure;
use std::time::Duration;
use tickwheel_cli::study::Configurations;

/// Searches for the mode and the tick that suit a recorded workload, and recommends one.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Choose {
    /// How late a timeout may be because of the tick. Ticks of up to this length are searched.
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = lateness)]
    max_lateness: Duration,

    #[command(flatten)]
    measuring: Measuring,

    /// Print one JSON object with all configurations instead of the table.
    #[arg(long)]
    json: bool,
}

impl Choose {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let options = self.measuring.options(Configurations::Search(self.max_lateness));
        let (study, _) = super::studied(&self.measuring.file, &options)?;
        super::print_study(&study, self.json)
    }
}

pub(crate) fn lateness(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(lateness) if lateness < Duration::from_micros(1) => {
            Err("expected at least 1us, the shortest tick".into())
        }
        Ok(lateness) => Ok(lateness),
        Err(_) => Err("expected a duration like `1ms`, `500us` or `1s`".into()),
    }
}

const HELP: &str = "\
Examples:
  tickwheel choose data/jobs-gaia.csv.gz
  tickwheel choose trace.csv --max-lateness 100ms --max-memory 16MiB
  tickwheel generate cancelled | tickwheel choose - --json";
