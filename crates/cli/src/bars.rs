//! What configurations cost, as bars: for the page and for the picture.

use crate::chart::Bar;
use crate::study::{Candidate, Figures, Study};
use crate::units;

impl Study {
    /// Whether scores were measured, and not only counted.
    pub(crate) fn is_measured(&self) -> bool {
        self.candidates.iter().any(|it| it.measured.is_some())
    }

    /// A bar of the score of each mode at [`tick`](Self::tick), the best first: what was measured,
    /// or what was counted if nothing was measured. What has no score on this scale has no bar, and
    /// its text says why.
    pub(crate) fn scores(&self) -> Vec<(&Candidate, Bar)> {
        let is_measured = self.is_measured();
        let counted = |it: &Candidate| it.figures.counted_score;
        let bar = |it: &Candidate| Bar {
            label: it.mode.to_string(),
            text: match self.doubt(it) {
                Some("stopped") => "stopped".into(),
                Some(doubt) if it.measured.is_none() && is_measured => {
                    let times = units::three_digits(self.times_counted(it));
                    format!("{doubt}: {times} x the work")
                }
                Some(doubt) if is_measured => format!("{}, {doubt}", units::duration(it.score())),
                _ => units::duration(it.score()),
            },
            parts: match &it.measured {
                Some(measured) => measured.parts.into(),
                None if is_measured || it.stopped.is_some() => Vec::new(),
                None => vec![counted(it)],
            },
            spread: it.measured.as_ref().map(|at| [at.score.least, at.score.most]),
            is_taken: self.recommended() == Some(it),
        };
        let shown = Self::by_score(self.at_its_tick());
        shown.into_iter().map(|it| (it, bar(it))).collect()
    }

    /// A bar of a count for each mode at [`tick`](Self::tick); none for what was stopped.
    pub(crate) fn counts(&self, value: fn(&Figures) -> u64, text: fn(u64) -> String) -> Vec<Bar> {
        let bar = |it: &Candidate| {
            let value = it.stopped.is_none().then(|| value(&it.figures));
            Bar {
                label: it.mode.to_string(),
                text: value.map_or_else(|| "stopped".into(), text),
                parts: value.into_iter().map(|value| value as f64).collect(),
                spread: None,
                is_taken: self.recommended() == Some(it),
            }
        };
        self.at_its_tick().map(bar).collect()
    }
}
