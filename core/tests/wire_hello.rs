//! The handshake, from bytes and to bytes.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use proptest::collection::vec;
use proptest::prelude::*;
use rref_core::NodeUid;
use rref_core::wire::*;

fn endpoint() -> Endpoint {
    Endpoint {
        uid: NodeUid(0x0102),
        name: "n1".into(),
        addresses: vec!["h:1".into()],
        features: 3,
        session_no: 4,
        recv_next: 5,
        ttl_ms: 30_000,
        calls: 6,
        call_bytes: 8,
        window: 7,
    }
}

fn hello() -> Hello {
    Hello {
        channel: Channel::Keeper,
        version_min: 1,
        version_max: 2,
        token: Token(*b"0123456789abcdef"),
        endpoint: endpoint(),
    }
}

fn rejected(text: String) -> HelloAck {
    HelloAck::Rejected {
        reason: RejectReason::NameTaken,
        text,
        uid: NodeUid(9),
        version_min: 1,
        version_max: 1,
    }
}

/// These bytes never change: peers of every version have to read them.
#[test]
fn golden_hello() {
    #[rustfmt::skip]
    let golden: Vec<u8> = [
        // magic, length; tag, channel, versions, 0; token
        &b"rref\x63\0\0\0"[..], &[1, 2, 1, 0, 2, 0, 0, 0], b"0123456789abcdef",
        // uid; features, recv_next, calls, call_bytes, window; session_no, ttl
        &[2, 1, 0, 0, 0, 0, 0, 0], &[0; 8], &[3, 0, 0, 0, 0, 0, 0, 0], &[5, 0, 0, 0, 0, 0, 0, 0],
        &[6, 0, 0, 0, 0, 0, 0, 0], &[8, 0, 0, 0, 0, 0, 0, 0], &[7, 0, 0, 0, 0, 0, 0, 0],
        &[4, 0, 0, 0, 0x30, 0x75, 0, 0],
        // addresses, name, address
        &[1, 0, 2, 0], b"n1", &[3, 0], b"h:1",
    ]
    .concat();
    assert_eq!(hello().encode().unwrap(), golden);
    assert_eq!(Hello::decode(&golden), Ok(Some((hello(), golden.len()))));
}

#[test]
fn answers_round_trip() {
    for ack in [HelloAck::Accepted { version: 1, endpoint: endpoint() }, rejected("taken".into())] {
        let bytes = ack.encode().unwrap();
        assert_eq!(HelloAck::decode(&bytes), Ok(Some((ack, bytes.len()))));
        assert!(Hello::decode(&bytes).is_err());
    }
    let long = rejected("é".repeat(3000)).encode().unwrap();
    let Ok(Some((HelloAck::Rejected { text, .. }, _))) = HelloAck::decode(&long) else {
        panic!("not rejected")
    };
    assert_eq!(text, "é".repeat(512));
}

#[test]
fn one_byte_at_a_time() {
    let mut bytes = hello().encode().unwrap();
    for end in 0..bytes.len() {
        assert_eq!(Hello::decode(&bytes[..end]), Ok(None));
    }
    // What follows belongs to somebody else.
    let len = bytes.len();
    bytes.extend_from_slice(b"next");
    assert_eq!(Hello::decode(&bytes), Ok(Some((hello(), len))));
}

#[test]
fn wrong_bytes_are_refused_at_once() {
    assert_eq!(Hello::decode(b"G"), Err(DecodeError::Magic));
    assert_eq!(Hello::decode(b"rrex"), Err(DecodeError::Magic));
    assert_eq!(Hello::decode(b"rref\0\0\0\0"), Err(DecodeError::Truncated { what: "hello" }));
    let most = (HELLO_MAX as u32 - 8).to_le_bytes();
    assert_eq!(Hello::decode(&[&b"rref"[..], &most].concat()), Ok(None));
    let over = (HELLO_MAX as u32 - 7).to_le_bytes();
    assert!(matches!(Hello::decode(&[&b"rref"[..], &over].concat()), Err(DecodeError::TooLarge { .. })));
    assert!(matches!(
        Hello::decode(b"rref\x10\0\0\0\x02"),
        Err(DecodeError::Value { what: "hello tag", .. })
    ));
}

#[test]
fn every_length_but_the_right_one_is_refused() {
    let good = hello().encode().unwrap();
    for len in 0..good.len() as u32 - 8 {
        let mut bad = good.clone();
        bad[4..8].copy_from_slice(&len.to_le_bytes());
        assert!(Hello::decode(&bad).is_err());
    }
    let mut long = good.clone();
    long[4] += 1;
    long.push(0);
    assert_eq!(Hello::decode(&long), Err(DecodeError::Trailing(1)));
}

#[test]
fn every_wrong_byte_is_an_error_or_another_hello() {
    let good = hello().encode().unwrap();
    for at in 0..good.len() {
        for flip in 1..=255u8 {
            let mut bad = good.clone();
            bad[at] ^= flip;
            if let Ok(Some((other, len))) = Hello::decode(&bad) {
                assert_eq!(other.encode().unwrap(), bad[..len]);
            }
            let _ = HelloAck::decode(&bad);
        }
    }
}

#[test]
fn what_is_too_large_is_not_sent() {
    let with = |change: fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        hello.encode()
    };
    assert!(with(|h| h.endpoint.name = "n".repeat(256)).is_ok());
    assert!(with(|h| h.endpoint.name = "n".repeat(257)).is_err());
    assert!(with(|h| h.endpoint.addresses = vec!["a".into(); 17]).is_err());
    assert!(with(|h| h.endpoint.addresses = vec!["a".repeat(257)]).is_err());
    let whole = with(|h| h.endpoint.addresses = vec!["a".repeat(256); 16]);
    assert!(matches!(whole, Err(EncodeError::TooLarge { what: "hello", .. })));
    assert!(with(|h| h.version_min = 0).is_err());
    assert!(with(|h| h.version_min = 3).is_err());
}

#[test]
fn tokens_stay_out_of_logs() {
    assert!(!format!("{:?}", hello()).contains("48"));
    assert_ne!(hello().token, Token::NONE);
    assert_eq!(hello().token, hello().token);
}

proptest! {
    #[test]
    fn hellos_round_trip(
        uid in any::<u128>(), name in ".{0,50}", addresses in vec(".{0,40}", 0..8), numbers in any::<[u64; 5]>(),
        small in any::<[u32; 2]>(), token in any::<[u8; 16]>(), min in 1..9u16, more in 0..9u16, data in any::<bool>(),
    ) {
        let [features, recv_next, calls, call_bytes, window] = numbers;
        let [session_no, ttl_ms] = small;
        let uid = NodeUid(uid);
        let endpoint =
            Endpoint { uid, name, addresses, features, session_no, recv_next, ttl_ms, calls, call_bytes, window };
        let channel = if data { Channel::Data } else { Channel::Keeper };
        let hello = Hello { channel, version_min: min, version_max: min + more, token: Token(token), endpoint };
        let bytes = hello.encode().unwrap();
        prop_assert_eq!(Hello::decode(&bytes), Ok(Some((hello, bytes.len()))));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(tail in vec(any::<u8>(), 0..200)) {
        let mut bytes = b"rref".to_vec();
        bytes.extend((tail.len() as u32).to_le_bytes());
        bytes.extend(tail);
        let _ = Hello::decode(&bytes);
        let _ = HelloAck::decode(&bytes);
    }
}
