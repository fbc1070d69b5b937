//! What a timeout carries.

/// A payload, and metadata beside it.
///
/// A payload alone is a content without metadata, and a pair of both is one with it:
///
/// ```
/// # fn main() -> Result<(), tickwheel_durable::Error> {
/// # use std::time::SystemTime;
/// # use tickwheel_durable::{DurableTimer, MemoryStore};
/// # let timer = DurableTimer::builder().open_store(MemoryStore::new())?;
/// # let at = SystemTime::now();
/// timer.schedule("order-17/payment", at, b"eur 20")?.wait()?;
/// timer.schedule("order-18/payment", at, (b"eur 20", "shop 3"))?.wait()?;
/// assert_eq!(timer.get("order-18/payment")?.unwrap().metadata(), "shop 3");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// Bytes for the consumer, up to [`MAX_PAYLOAD`](crate::MAX_PAYLOAD) of them.
    pub payload: &'a [u8],
    /// A text for those who do not know what the payload means, as a tenant, a trace or a type. It has
    /// up to [`MAX_METADATA`](crate::MAX_METADATA) bytes of UTF-8, without NUL, and may be empty. The
    /// timer does not look into it.
    pub metadata: &'a str,
}

impl Content<'_> {
    /// Returns how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.metadata.len()
    }
}

impl<'a, P: AsRef<[u8]> + ?Sized> From<&'a P> for Content<'a> {
    fn from(payload: &'a P) -> Self {
        Self { payload: payload.as_ref(), metadata: "" }
    }
}

/// Payload and metadata.
impl<'a, P: AsRef<[u8]> + ?Sized, M: AsRef<str> + ?Sized> From<(&'a P, &'a M)> for Content<'a> {
    fn from((payload, metadata): (&'a P, &'a M)) -> Self {
        Self { payload: payload.as_ref(), metadata: metadata.as_ref() }
    }
}
