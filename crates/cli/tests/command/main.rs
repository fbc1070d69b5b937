//! What the command `tickwheel` promises, a file per subcommand.

mod choose;
mod generate;
#[cfg(feature = "record")]
mod record;
mod replay;
mod report;
mod watch;
