//! What the command `tickwheel` promises, a file per subcommand.

mod choose;
mod generate;
#[cfg(feature = "record")]
mod record;
mod replay;
#[cfg(feature = "report")]
mod report;
mod watch;
