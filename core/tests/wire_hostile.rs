//! Frames made to hurt: each is refused for the right reason, before anything is allocated for it.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use bytes::Bytes;
use rref_core::wire::*;
use rref_core::{NodeUid, ObjectId, Stamp};

const LIMITS: &Limits = &Limits::DEFAULT;

const OBJECT: ObjectId = ObjectId { owner: NodeUid(1), creator: NodeUid(2), create_no: 3 };

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let seq = u64::from(Kind::of(frame).in_sequence());
    encode(seq, 0, 0, frame, LIMITS).unwrap().parts().flat_map(|part| part.to_vec()).collect()
}

fn read(bytes: Vec<u8>) -> Result<Stamped, DecodeError> {
    decode(Bytes::from(bytes), LIMITS)
}

fn reply(segments: Vec<Segment>, transfer: u32) -> Frame {
    let payload = Payload { segments, transfer, ..Payload::default() };
    Frame::Reply(Reply { call_id: 1, status: Status::Ok, payload })
}

fn segment(dtype: DType, shape: &[usize], bytes: &'static [u8]) -> Segment {
    Segment { dtype, shape: shape.to_vec(), data: SegmentData::Inline(Bytes::from_static(bytes)) }
}

/// A reply with one inline `u8` segment, its dims replaced.
fn with_dims(dims: &[u64], data: &[u8]) -> Vec<u8> {
    let mut bytes = bytes_of(&reply(vec![segment(DType::U8, &vec![0; dims.len()], &[])], 0));
    for (index, dim) in dims.iter().enumerate() {
        let at = HEADER + 16 + 8 + 8 * index;
        bytes[at..at + 8].copy_from_slice(&dim.to_le_bytes());
    }
    bytes.extend_from_slice(data);
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes
}

#[test]
fn a_length_is_judged_before_the_body_is_there() {
    let head = |len: u32, kind: Kind| {
        let mut head = len.to_le_bytes().to_vec();
        head.push(kind as u8);
        head
    };
    assert_eq!(frame_len(&[], LIMITS), Ok(None));
    assert_eq!(frame_len(&[255, 255, 255], LIMITS), Ok(None));
    assert!(matches!(frame_len(&u32::MAX.to_le_bytes(), LIMITS), Err(DecodeError::TooLarge { .. })));
    assert_eq!(frame_len(&[0; 4], LIMITS), Err(DecodeError::Short(0)));
    assert_eq!(frame_len(&[47, 0, 0, 0], LIMITS), Err(DecodeError::Short(47)));
    // The cap depends on the kind, so four bytes do not suffice.
    assert_eq!(frame_len(&[48, 0, 0, 0], LIMITS), Ok(None));
    assert_eq!(frame_len(&[48, 0, 0, 0, 99], LIMITS), Err(DecodeError::Kind(99)));
    for kind in Kind::ALL {
        let cap = if kind.is_control() { LIMITS.control } else { LIMITS.frame };
        assert_eq!(frame_len(&head(cap as u32, kind), LIMITS), Ok(Some(cap)));
        let over = frame_len(&head(cap as u32 + 1, kind), LIMITS);
        assert!(matches!(over, Err(DecodeError::TooLarge { what: "frame", .. })), "{kind:?}");
    }
}

#[test]
fn counts_beyond_the_bytes_are_refused() {
    let mut refs = bytes_of(&reply(vec![], 0));
    refs[6..8].copy_from_slice(&1024u16.to_le_bytes());
    assert_eq!(read(refs.clone()), Err(DecodeError::Truncated { what: "reference table" }));
    refs[6..8].copy_from_slice(&1025u16.to_le_bytes());
    assert!(matches!(read(refs), Err(DecodeError::TooLarge { what: "reference table", .. })));

    let mut segments = bytes_of(&reply(vec![], 0));
    segments[36..38].copy_from_slice(&1024u16.to_le_bytes());
    assert_eq!(read(segments.clone()), Err(DecodeError::Truncated { what: "segments" }));
    segments[36..38].copy_from_slice(&1025u16.to_le_bytes());
    assert!(matches!(read(segments), Err(DecodeError::TooLarge { what: "segments", .. })));

    let mut ack = bytes_of(&Frame::Ack(Ack { session_no: 1, at: 1, exceptions: vec![] }));
    ack[HEADER + 4..HEADER + 8].copy_from_slice(&1000u32.to_le_bytes());
    assert_eq!(read(ack.clone()), Err(DecodeError::Truncated { what: "exceptions" }));
    ack[HEADER + 4..HEADER + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(ack), Err(DecodeError::TooLarge { what: "exceptions", .. })));

    let mut body = bytes_of(&reply(vec![], 0));
    body[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(body), Err(DecodeError::TooLarge { what: "body", .. })));
}

#[test]
fn shapes_are_checked() {
    assert_eq!(read(with_dims(&[1 << 40, 1 << 40], &[])), Err(DecodeError::Shape { segment: 0 }));
    // A zero does not hide an overflow.
    assert_eq!(read(with_dims(&[0, 1 << 40, 1 << 40], &[])), Err(DecodeError::Shape { segment: 0 }));
    assert_eq!(read(with_dims(&[u64::MAX, 0], &[])), Err(DecodeError::Shape { segment: 0 }));
    assert!(read(with_dims(&[0, 1 << 40], &[])).is_ok());
    // More elements than a message may have, than there are bytes, and fewer.
    assert!(matches!(read(with_dims(&[1 << 40], &[])), Err(DecodeError::TooLarge { what: "message", .. })));
    assert_eq!(read(with_dims(&[3], &[1, 2])), Err(DecodeError::Truncated { what: "segment" }));
    assert_eq!(read(with_dims(&[1], &[1, 2])), Err(DecodeError::Trailing(1)));
    assert!(read(with_dims(&[2; 8], &[0; 256])).is_ok());

    let mut axes = with_dims(&[1], &[1]);
    axes[HEADER + 16 + 1] = 9;
    assert!(matches!(read(axes), Err(DecodeError::TooLarge { what: "axes", .. })));
}

#[test]
fn booleans_are_0_or_1() {
    let mut bytes = bytes_of(&reply(vec![segment(DType::Bool, &[3], &[1, 0, 1])], 0));
    assert!(read(bytes.clone()).is_ok());
    *bytes.last_mut().unwrap() = 2;
    assert_eq!(read(bytes), Err(DecodeError::Storage(StorageError::Bool)));
}

#[test]
fn padding_and_reserved_bytes_are_zero() {
    let good = bytes_of(&reply(vec![segment(DType::U8, &[1], &[7])], 0));
    assert_eq!(good.len(), 129);
    for at in (5..6).chain(38..40).chain(44..48).chain(57..64).chain(66..72).chain(80..128) {
        let mut bad = good.clone();
        bad[at] = 128;
        assert!(read(bad).is_err(), "byte {at}");
    }
}

#[test]
fn ids_and_transfers_mean_something() {
    let zero = |frame: &Frame, at: usize, len: usize| {
        let mut bytes = bytes_of(frame);
        bytes[at..at + len].fill(0);
        read(bytes)
    };
    let claim = Frame::Claim(vec![OBJECT]);
    let value = |what| Err(DecodeError::Value { what, value: 0 });
    assert_eq!(zero(&claim, 8, 8), value("seq"));
    assert_eq!(zero(&claim, HEADER + 32, 8), value("create_no"));
    assert_eq!(zero(&Frame::Cancel { call_id: 1 }, HEADER, 8), value("call_id"));
    assert_eq!(zero(&reply(vec![], 0), HEADER, 8), value("call_id"));
    let echo = Frame::HeartbeatEcho(HeartbeatEcho { uid: NodeUid(1), session_no: 1, nonce: 1 });
    assert_eq!(zero(&echo, HEADER + 24, 8), value("nonce"));
    let begin = Frame::InventoryBegin { next_create: 1, seen: Stamp::ZERO };
    assert_eq!(zero(&begin, HEADER, 8), value("create_no"));
    let name = Name { index: 1, kind: NameKind::Type, path: String::new(), schema: 0 };
    assert_eq!(zero(&Frame::Name(name), HEADER, 4), value("name index"));

    let part = Segment { dtype: DType::U8, shape: vec![1], data: SegmentData::Chunked };
    assert_eq!(zero(&reply(vec![part], 5), 40, 4), value("transfer"));
    let mut unchunked = bytes_of(&reply(vec![], 0));
    unchunked[40] = 5;
    assert_eq!(read(unchunked), Err(DecodeError::Value { what: "transfer", value: 5 }));
    // Tables, bodies and the like where the kind has none.
    for at in [5, 6, 32, 36, 40] {
        let mut bytes = bytes_of(&Frame::Credit { calls: 1, bytes: 2 });
        bytes[at] = 1;
        assert!(matches!(read(bytes), Err(DecodeError::Reserved { .. })));
    }
}

#[test]
fn text_is_utf8() {
    let name = Name { index: 1, kind: NameKind::Type, path: "ab".into(), schema: 0 };
    let mut bytes = bytes_of(&Frame::Name(name));
    *bytes.last_mut().unwrap() = 0xFF;
    assert_eq!(read(bytes), Err(DecodeError::Utf8 { what: "path" }));
}

#[test]
fn chunks_are_checked_by_themselves() {
    let chunk =
        |part, dtype, total, len| Chunk { transfer: 1, part, dtype, total, bytes: Bytes::from(vec![0; len]) };
    let refused = [
        chunk(1, DType::F32, 8, 3),
        chunk(1, DType::F32, 9, 4),
        chunk(1, DType::F32, 4, 8),
        chunk(1, DType::F32, 4, 0),
        chunk(0, DType::F32, 4, 4),
        chunk(1025, DType::F32, 4, 4),
        chunk(0, DType::U8, LIMITS.body as u64 + 1, 1),
        chunk(1, DType::U8, LIMITS.message + 1, 1),
        chunk(1, DType::U8, 5 << 20, LIMITS.chunk + 1),
        Chunk { transfer: 0, ..chunk(1, DType::U8, 1, 1) },
    ];
    for chunk in refused {
        assert!(encode(1, 0, 0, &Frame::Chunk(chunk.clone()), LIMITS).is_err());
        // With limits of its own, somebody else might send it.
        let lax =
            Limits { chunk: 1 << 30, body: 1 << 30, segments: 2000, message: 1 << 40, ..Limits::DEFAULT };
        if let Ok(encoded) = encode(1, 0, 0, &Frame::Chunk(chunk), &lax) {
            assert!(read(encoded.parts().flat_map(|part| part.to_vec()).collect()).is_err());
        }
    }
    let full = bytes_of(&Frame::Chunk(chunk(1, DType::U8, 5 << 20, LIMITS.chunk)));
    assert_eq!(full.len(), 64 + LIMITS.chunk);
    assert!(read(full).is_ok());
}

#[test]
fn nothing_is_encoded_that_would_be_refused() {
    let refused = |frame: &Frame| encode(1, 0, 0, frame, LIMITS).is_err();
    let typed = SegmentData::Typed(Storage::U8(vec![1]));
    assert!(refused(&reply(vec![Segment { dtype: DType::U8, shape: vec![1], data: typed }], 0)));
    assert!(refused(&reply(vec![segment(DType::U16, &[2], &[0; 3])], 0)));
    assert!(refused(&reply(vec![segment(DType::U16, &[usize::MAX, 2], &[])], 0)));
    assert!(refused(&reply(vec![segment(DType::U16, &[0; 9], &[])], 0)));
    assert!(refused(&reply(vec![], 1)));
    assert!(refused(&Frame::Claim(vec![ObjectId { create_no: 0, ..OBJECT }])));
    assert!(refused(&Frame::Cancel { call_id: 0 }));
    let mut named = Name { index: 1, kind: NameKind::Type, path: "x".repeat(1024), schema: 0 };
    assert!(!refused(&Frame::Name(named.clone())));
    named.path.push('x');
    assert!(refused(&Frame::Name(named)));
    assert!(encode(0, 0, 0, &Frame::Credit { calls: 1, bytes: 2 }, LIMITS).is_err());
    let ack = Frame::Ack(Ack { session_no: 1, at: 1, exceptions: vec![] });
    assert!(refused(&ack) && encode(0, 0, 0, &ack, LIMITS).is_ok());
    let body = Body::Inline(Bytes::from(vec![0; LIMITS.frame]));
    let payload = Payload { body, ..Payload::default() };
    let large = Frame::Reply(Reply { call_id: 1, status: Status::Ok, payload });
    let over = encode(1, 0, 0, &large, LIMITS);
    assert!(matches!(over, Err(EncodeError::TooLarge { what: "frame", .. })));
}

#[test]
fn the_largest_control_frames_fit() {
    let n = LIMITS.objects;
    assert!(read(bytes_of(&Frame::Claim(vec![OBJECT; n]))).is_ok());
    assert!(read(bytes_of(&Frame::Release(vec![(OBJECT, Stamp::ZERO); n]))).is_ok());
    assert!(read(bytes_of(&Frame::InventoryItems(vec![OBJECT; n]))).is_ok());
    assert!(read(bytes_of(&Frame::Gone(vec![(OBJECT, GoneReason::Died("é".repeat(2000))); n]))).is_ok());
    let exceptions = vec![NodeUid(1); LIMITS.exceptions];
    assert!(read(bytes_of(&Frame::Ack(Ack { session_no: 1, at: 1, exceptions }))).is_ok());
    let peer = PeerInfo {
        uid: NodeUid(1),
        name: "n".repeat(256),
        addresses: vec!["a".repeat(256); LIMITS.addresses],
    };
    assert!(read(bytes_of(&Frame::Peer(peer))).is_ok());
    assert!(encode(1, 0, 0, &Frame::Claim(vec![OBJECT; n + 1]), LIMITS).is_err());
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let text = format!("x{}", "é".repeat(600));
    let frame = Frame::Gone(vec![(OBJECT, GoneReason::CreateFailed(text))]);
    let Frame::Gone(read) = read(bytes_of(&frame)).unwrap().frame else { panic!("not a Gone") };
    assert_eq!(read[0].1, GoneReason::CreateFailed(format!("x{}", "é".repeat(511))));
}
