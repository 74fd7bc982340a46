//! Reads a frame from its start. It refuses a malformed frame.

use std::borrow::Cow;

/// Why bytes are not a valid frame.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{length} bytes are no valid frame: {what}")]
pub struct Bad {
    length: usize,
    what: Cow<'static, str>,
}

pub struct FrameReader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> FrameReader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, whole: bytes.len() }
    }

    pub fn bad(&self, what: impl Into<Cow<'static, str>>) -> Bad {
        Bad { length: self.whole, what: what.into() }
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or_else(|| self.bad("it ends too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    #[inline]
    pub fn short(&mut self) -> Result<u16, Bad> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn word(&mut self) -> Result<u32, Bad> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn long(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    #[inline]
    pub fn text(&mut self) -> Result<&'a str, Bad> {
        let bytes = self.rest();
        std::str::from_utf8(bytes).map_err(|_| self.bad("a text that is not UTF-8"))
    }

    #[inline]
    pub fn text_of(&mut self, length: usize) -> Result<&'a str, Bad> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| self.bad("a text that is not UTF-8"))
    }

    pub fn json<T: serde::Deserialize<'a>>(&mut self) -> Result<T, Bad> {
        serde_json::from_slice(self.rest()).map_err(|error| self.bad(error.to_string()))
    }

    #[inline]
    pub fn end(&self) -> Result<(), Bad> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.bad("bytes are left over")) }
    }
}
