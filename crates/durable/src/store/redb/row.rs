//! Rows as bytes, with a version and a checksum.

use std::sync::Arc;

use crate::store::Row;

/// Returns the value of a row; its deadline and name are the key.
pub(crate) fn encode(row: &Row) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD + row.payload.len());
    value.push(VERSION);
    value.extend_from_slice(&row.attempt.to_le_bytes());
    value.extend_from_slice(&row.number.to_le_bytes());
    let sum = sum(row.deadline, row.name.as_bytes(), &value, &row.payload);
    value.extend_from_slice(&sum.to_le_bytes());
    value.extend_from_slice(&row.payload);
    value
}

/// Returns the row of this key and value, or what is wrong with it.
pub(crate) fn decode(
    deadline: u64,
    name: &[u8],
    value: &[u8],
    partition: u32,
) -> Result<Row, &'static str> {
    let Some((head, payload)) = value.split_at_checked(HEAD) else {
        return Err("it is cut short");
    };
    let (head, told) = head.split_at(HEAD - 4);
    if sum(deadline, name, head, payload).to_le_bytes() != told {
        return Err("its checksum is wrong");
    }
    if head[0] != VERSION {
        return Err("it is of a version that this program does not know");
    }
    let name = str::from_utf8(name).map_err(|_| "its name is not UTF-8")?;
    let (attempt, number) = head[1..].split_at(4);
    Ok(Row {
        name: Arc::from(name),
        deadline,
        payload: Arc::from(payload),
        attempt: u32::from_le_bytes(attempt.try_into().expect("4 bytes")),
        number: u64::from_le_bytes(number.try_into().expect("8 bytes")),
        partition,
    })
}

/// Returns the sum of a name's entry in the index.
pub(crate) fn index_sum(name: &[u8], deadline: u64) -> u32 {
    sum(deadline, name, &[], &[])
}

fn sum(deadline: u64, name: &[u8], head: &[u8], payload: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&deadline.to_le_bytes());
    // The length keeps a byte from moving between the name and the payload.
    let sum = crc32c::crc32c_append(sum, &(name.len() as u64).to_le_bytes());
    let sum = crc32c::crc32c_append(sum, name);
    let sum = crc32c::crc32c_append(sum, head);
    crc32c::crc32c_append(sum, payload)
}

/// version 1 | attempt 4 | number 8 | checksum 4 | payload, numbers little-endian.
const VERSION: u8 = 1;
const HEAD: usize = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_and_no_flipped_bit_goes_unseen() {
        let row = Row {
            name: "order-17/payment".into(),
            deadline: 1_800_000_000_000,
            payload: Arc::from(&b"eur 20"[..]),
            attempt: 3,
            number: 77,
            partition: 0,
        };
        let value = encode(&row);
        let name = row.name.as_bytes();
        assert_eq!(decode(row.deadline, name, &value, 0), Ok(row.clone()));
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
