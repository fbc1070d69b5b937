//! `tickwheel generate`.

use super::output::{OutputFile, print};
use super::progress;
use crate::Failure;
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::ProgressBar;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::trace::Trace;

/// Generates a trace of a typical shape, of any size.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Generate {
    /// What the timeouts are like.
    #[arg(value_enum, value_name = "SHAPE")]
    shape: Shape,

    /// How many operations the trace has.
    #[arg(long, value_name = "NUMBER", default_value = "1e6", value_parser = super::operations)]
    operations: usize,

    /// The most timeouts that are pending at once.
    #[arg(long, value_name = "NUMBER", default_value = "1e4", value_parser = pending)]
    pending: NonZeroU32,

    /// The same seed gives the same trace.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Write the trace into this file instead of standard output, as gzip if the name ends in .gz.
    #[arg(short, long, value_name = "FILE", value_parser = OutputFile::parser())]
    output: Option<OutputFile>,
}

impl Generate {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(file) = &self.output {
            file.check()?;
        }
        let progress = ProgressBar::hidden();
        // A trace that is shown is its own progress, and who reads it from a pipe shows another.
        if self.output.is_some() {
            let template = "{bar:40} {human_pos} of {human_len} operations ({eta})";
            progress::show(&progress, Some(self.operations as u64), template);
        }
        let done = match &self.output {
            Some(file) => {
                let interrupted = progress::noted_when_interrupted()?;
                file.write(|mut output| {
                    if file.extension().as_deref() != Some("gz") {
                        return self.write(output, &progress, &interrupted);
                    }
                    let mut packed = GzEncoder::new(&mut output, Compression::default());
                    self.write(&mut packed, &progress, &interrupted)?;
                    packed.finish().map(drop)
                })
            }
            None => {
                progress::exit_when_interrupted(&progress)?;
                print(|output| self.write(output, &progress, &AtomicBool::new(false)))
            }
        };
        progress::clear(&progress);
        done
    }

    fn write(
        &self,
        output: &mut dyn Write,
        progress: &ProgressBar,
        interrupted: &AtomicBool,
    ) -> io::Result<()> {
        const OPERATIONS_A_LOOK: u64 = 4096;
        let size = Size { operations: self.operations as u64, pending: self.pending };
        let mut output = BufWriter::with_capacity(1 << 16, output);
        writeln!(output, "{}", Trace::HEADER)?;
        for (number, operation) in (0..).zip(Generator::new(self.shape, size, self.seed)) {
            if number % OPERATIONS_A_LOOK == 0 {
                if interrupted.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                progress.set_position(number);
            }
            writeln!(output, "{operation}")?;
        }
        output.flush()
    }
}

/// The most timeouts, as a person writes it.
fn pending(text: &str) -> Result<NonZeroU32, String> {
    let number = u32::try_from(super::operations(text)?).ok().and_then(NonZeroU32::new);
    number.ok_or_else(|| format!("expected a whole number from 1 to {}", u32::MAX))
}

const HELP: &str = "\
Examples:
  tickwheel generate cancelled -o requests.csv.gz
  tickwheel generate year --operations 10000000 --pending 1000000 --seed 7 -o jobs.csv
  tickwheel generate bursts | tickwheel replay -";
