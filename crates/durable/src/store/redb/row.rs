//! Rows as bytes, with a version and a checksum.

use std::sync::Arc;

use crate::store::Row;
use crate::values;

/// Returns the value of a row; its deadline and name are the key.
pub(crate) fn encode(row: &Row) -> Vec<u8> {
    let (payload, metadata) = (&row.payload, row.metadata.as_bytes());
    let mut value = Vec::with_capacity(HEAD + LENGTH + metadata.len() + payload.len());
    value.push(if metadata.is_empty() { PLAIN } else { WITH_METADATA });
    value.extend_from_slice(&row.attempt.to_le_bytes());
    value.extend_from_slice(&row.number.to_le_bytes());
    // For the checksum, which is that of all else.
    value.extend_from_slice(&[0; 4]);
    if !metadata.is_empty() {
        value.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        value.extend_from_slice(metadata);
    }
    value.extend_from_slice(payload);
    let (head, rest) = value.split_at_mut(HEAD);
    let (head, told) = head.split_at_mut(HEAD - 4);
    told.copy_from_slice(&sum(row.deadline, row.name.as_bytes(), head, rest).to_le_bytes());
    value
}

/// Returns the row of this key and value, or what is wrong with it.
pub(crate) fn decode(
    deadline: u64,
    name: &[u8],
    value: &[u8],
    partition: u32,
) -> Result<Row, &'static str> {
    let Some((head, rest)) = value.split_at_checked(HEAD) else { return Err(CUT) };
    let (head, told) = head.split_at(HEAD - 4);
    if sum(deadline, name, head, rest).to_le_bytes() != told {
        return Err("its checksum is wrong");
    }
    let (metadata, payload) = match head[0] {
        PLAIN => (&[][..], rest),
        WITH_METADATA => {
            let (length, rest) = rest.split_first_chunk::<LENGTH>().ok_or(CUT)?;
            rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(CUT)?
        }
        _ => return Err("it is of a version that this program does not know"),
    };
    let name = str::from_utf8(name).map_err(|_| "its name is not UTF-8")?;
    let metadata = str::from_utf8(metadata).map_err(|_| "its metadata is not UTF-8")?;
    let (attempt, number) = head[1..].split_at(4);
    Ok(Row {
        name: Arc::from(name),
        deadline,
        payload: Arc::from(payload),
        metadata: values::metadata(metadata),
        attempt: u32::from_le_bytes(attempt.try_into().expect("4 bytes")),
        number: u64::from_le_bytes(number.try_into().expect("8 bytes")),
        partition,
    })
}

/// Returns the sum of a name's entry in the index.
pub(crate) fn index_sum(name: &[u8], deadline: u64) -> u32 {
    sum(deadline, name, &[], &[])
}

fn sum(deadline: u64, name: &[u8], head: &[u8], rest: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&deadline.to_le_bytes());
    // The length keeps a byte from moving between the name and what follows.
    let sum = crc32c::crc32c_append(sum, &(name.len() as u64).to_le_bytes());
    let sum = crc32c::crc32c_append(sum, name);
    let sum = crc32c::crc32c_append(sum, head);
    crc32c::crc32c_append(sum, rest)
}

/// version 1 | attempt 4 | number 8 | checksum 4 | payload, numbers little-endian.
const PLAIN: u8 = 1;
const HEAD: usize = 17;
/// Before the payload: length of metadata 4 | metadata.
const WITH_METADATA: u8 = 2;
const LENGTH: usize = 4;

const CUT: &str = "it is cut short";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metadata: &str) -> Row {
        Row {
            name: "order-17/payment".into(),
            deadline: 1_800_000_000_000,
            payload: Arc::from(&b"eur 20"[..]),
            metadata: metadata.into(),
            attempt: 3,
            number: 77,
            partition: 0,
        }
    }

    #[test]
    fn a_row_comes_back_and_no_flipped_bit_goes_unseen() {
        for metadata in ["", "shop 3"] {
            comes_back_and_no_flipped_bit_goes_unseen(&row(metadata));
        }
    }

    #[test]
    fn a_row_without_metadata_is_as_it_was_before_there_was_metadata() {
        let value = encode(&row(""));
        assert_eq!(value.len(), HEAD + 6);
        assert_eq!(&value[..13], [1, 3, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(value[HEAD..], *b"eur 20");
    }

    fn comes_back_and_no_flipped_bit_goes_unseen(row: &Row) {
        let value = encode(row);
        let name = row.name.as_bytes();
        assert_eq!(decode(row.deadline, name, &value, 0).as_ref(), Ok(row));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(row.deadline, name, &damaged, 0).is_err(), "bit {bit}");
        }
        for bit in 0..64 {
            assert!(decode(row.deadline ^ (1 << bit), name, &value, 0).is_err());
        }
        for length in 0..value.len() {
            assert!(decode(row.deadline, name, &value[..length], 0).is_err());
        }
        assert!(decode(row.deadline, b"order-17/paymenu", &value, 0).is_err());
        assert!(decode(row.deadline, b"order-17/paymen", &value, 0).is_err());
    }
}
