//! Frames survive the way to bytes and back; damaged bytes never panic.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rref_core::wire::*;
use rref_core::{NodeUid, ObjectId, Stamp};

const LIMITS: &Limits = &Limits::DEFAULT;

fn joined(encoded: &Encoded) -> Bytes {
    let mut all = Vec::new();
    encoded.parts().for_each(|part| all.extend_from_slice(part));
    assert_eq!(all.len(), encoded.len());
    assert!(encoded.parts().all(|part| !part.is_empty()));
    assert_eq!(encoded.parts().count(), encoded.part_count());
    Bytes::from(all)
}

fn write(stamped: &Stamped) -> Bytes {
    let Stamped { seq, ack, settled, frame } = stamped;
    joined(&encode(*seq, *ack, *settled, frame, LIMITS).unwrap())
}

fn object() -> impl Strategy<Value = ObjectId> {
    (any::<u128>(), any::<u128>(), 1..u64::MAX).prop_map(|(owner, creator, create_no)| ObjectId {
        owner: NodeUid(owner),
        creator: NodeUid(creator),
        create_no,
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    let size = prop_oneof![4 => 0..6usize, 1 => 500..900usize];
    (1..=13u8, vec(0..4usize, 0..3), size, any::<u8>(), any::<bool>()).prop_map(
        |(code, mut shape, first, fill, chunked)| {
            let dtype = DType::from_code(code).unwrap();
            shape.insert(0, first);
            let size = shape_bytes(dtype, &shape).unwrap();
            let fill = if dtype == DType::Bool { fill % 2 } else { fill };
            let data = match chunked {
                true => SegmentData::Chunked,
                false => SegmentData::Inline(Bytes::from(vec![fill; size])),
            };
            Segment { dtype, shape, data }
        },
    )
}

fn payload() -> impl Strategy<Value = Payload> {
    let body = prop_oneof![
        vec(any::<u8>(), 0..50).prop_map(|bytes| Body::Inline(Bytes::from(bytes))),
        (4090..4110usize).prop_map(|len| Body::Inline(Bytes::from(vec![9; len]))),
        Just(Body::Chunked),
    ];
    (vec(object(), 0..4), body, vec(segment(), 0..4), 1..u32::MAX).prop_map(
        |(refs, body, segments, transfer)| {
            let chunked =
                body == Body::Chunked || segments.iter().any(|segment| segment.data == SegmentData::Chunked);
            Payload { refs, body, segments, transfer: if chunked { transfer } else { 0 } }
        },
    )
}

fn trace() -> impl Strategy<Value = Trace> {
    (any::<u128>(), any::<u64>()).prop_map(|(trace_id, span_id)| Trace { trace_id, span_id })
}

fn call() -> impl Strategy<Value = Call> {
    let target = (0..7, object(), 1..u32::MAX).prop_map(|(which, object, name)| match which {
        0 => Target::Function { name },
        1 => Target::Message { object, name },
        2 => Target::Method { object, name },
        3 => Target::Fetch { object, name },
        4 => Target::Flush { object },
        5 => Target::Ended { object },
        _ => Target::Ready { object },
    });
    (1..u64::MAX, target, any::<u64>(), trace(), payload()).prop_map(
        |(call_id, target, timeout_ms, trace, payload)| Call { call_id, target, timeout_ms, trace, payload },
    )
}

fn create() -> impl Strategy<Value = Create> {
    let source = (0..3, object(), 1..u32::MAX).prop_map(|(which, object, name)| match which {
        0 => Source::Function { name },
        1 => Source::Message { object, name },
        _ => Source::Copy { name },
    });
    (1..u64::MAX, source, trace(), payload()).prop_map(|(create_no, source, trace, payload)| Create {
        create_no,
        source,
        trace,
        payload,
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    (1..u64::MAX, any::<bool>(), payload()).prop_map(|(call_id, ok, payload)| Reply {
        call_id,
        status: if ok { Status::Ok } else { Status::Failed },
        payload,
    })
}

fn reason() -> impl Strategy<Value = GoneReason> {
    (0..8, ".{0,40}").prop_map(|(which, text)| match which {
        0 => GoneReason::Freed,
        1 => GoneReason::NeverCreated,
        2 => GoneReason::CreatorDied,
        3 => GoneReason::LeaseExpired,
        4 => GoneReason::Stopped,
        5 => GoneReason::CreateFailed(text),
        6 => GoneReason::Unreachable,
        _ => GoneReason::Died(text),
    })
}

fn chunk() -> impl Strategy<Value = Chunk> {
    (1..u32::MAX, 1..1025u16, 1..=13u8, 0..1000u64, vec(any::<u8>(), 1..300)).prop_map(
        |(transfer, part, code, more, seed)| {
            let dtype = DType::from_code(code).unwrap();
            let bytes = Bytes::from(seed.repeat(dtype.size()));
            let total = bytes.len() as u64 + more * dtype.size() as u64;
            Chunk { transfer, part, dtype, total, bytes }
        },
    )
}

fn name() -> impl Strategy<Value = Name> {
    (1..u32::MAX, 0..4, "[a-z:]{0,60}", any::<u128>()).prop_map(|(index, kind, path, schema)| {
        let kinds = [NameKind::Function, NameKind::Message, NameKind::Method, NameKind::Type];
        Name { index, kind: kinds[kind as usize], path, schema }
    })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u32>(), any::<u64>()).prop_map(|(session_no, seq)| Stamp { session_no, seq })
}

fn frame() -> impl Strategy<Value = Frame> {
    let peer = (any::<u128>(), ".{0,20}", vec(".{0,30}", 0..5)).prop_map(|(uid, name, addresses)| PeerInfo {
        uid: NodeUid(uid),
        name,
        addresses,
    });
    let ack = (any::<u32>(), any::<u64>(), vec(any::<u128>().prop_map(NodeUid), 0..5))
        .prop_map(|(session_no, at, exceptions)| Ack { session_no, at, exceptions });
    prop_oneof![
        name().prop_map(Frame::Name),
        peer.prop_map(Frame::Peer),
        create().prop_map(Frame::Create),
        call().prop_map(Frame::Call),
        call().prop_map(|call| Frame::Cast(Call { call_id: 0, ..call })),
        reply().prop_map(Frame::Reply),
        reply().prop_map(Frame::Item),
        reply().prop_map(Frame::End),
        (1..u64::MAX).prop_map(|call_id| Frame::Cancel { call_id }),
        (1..u64::MAX, 1..u64::MAX).prop_map(|(call_id, items)| Frame::More { call_id, items }),
        vec(object(), 0..5).prop_map(Frame::Claim),
        vec((object(), stamp()), 0..5).prop_map(Frame::Release),
        vec((object(), reason()), 0..5).prop_map(Frame::Gone),
        chunk().prop_map(Frame::Chunk),
        any::<(u64, u64)>().prop_map(|(calls, bytes)| Frame::Credit { calls, bytes }),
        prop_oneof![Just(LeaveStage::Draining), Just(LeaveStage::Leaving)].prop_map(Frame::Leave),
        ack.prop_map(Frame::Ack),
        (1..u64::MAX, stamp()).prop_map(|(next_create, seen)| Frame::InventoryBegin { next_create, seen }),
        vec(object(), 0..5).prop_map(Frame::InventoryItems),
        Just(Frame::InventoryEnd),
        heartbeat().prop_map(Frame::Heartbeat),
        (any::<u128>(), any::<u32>(), 1..u64::MAX).prop_map(|(uid, session_no, nonce)| {
            Frame::HeartbeatEcho(HeartbeatEcho { uid: NodeUid(uid), session_no, nonce })
        }),
    ]
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let numbers = (1..u64::MAX, any::<[u64; 6]>());
    (any::<u128>(), any::<u32>(), numbers).prop_map(|(uid, session_no, (nonce, rest))| {
        let [asks, clear, count, hash, ack, at] = rest;
        let listed = Digest { count, hash };
        Heartbeat { uid: NodeUid(uid), session_no, nonce, asks, clear, listed, ack, at }
    })
}

fn stamped() -> impl Strategy<Value = Stamped> {
    (1..u64::MAX, any::<u64>(), any::<u64>(), frame()).prop_map(|(seq, ack, settled, frame)| Stamped {
        seq: if Kind::of(&frame).in_sequence() { seq } else { 0 },
        ack,
        settled,
        frame,
    })
}

proptest! {
    #[test]
    fn frames_round_trip(stamped in stamped()) {
        let bytes = write(&stamped);
        prop_assert_eq!(frame_len(&bytes, LIMITS), Ok(Some(bytes.len())));
        let header = header(&bytes).unwrap();
        prop_assert_eq!(
            (header.len as usize, header.kind, header.seq, header.ack, header.settled),
            (bytes.len(), Kind::of(&stamped.frame), stamped.seq, stamped.ack, stamped.settled)
        );
        prop_assert_eq!(decode(bytes, LIMITS), Ok(stamped));
    }

    /// Whatever one wrong byte makes of a frame: an error, or another frame with just these bytes.
    #[test]
    fn a_wrong_byte_is_an_error_or_another_frame(stamped in stamped(), at in any::<usize>(), flip in 1..=255u8) {
        let mut bytes = write(&stamped).to_vec();
        // Most of the interest is in the first bytes.
        let at = if at % 2 == 0 { at % bytes.len() } else { at % bytes.len().min(160) };
        bytes[at] ^= flip;
        let bytes = Bytes::from(bytes);
        if let Ok(other) = decode(bytes.clone(), LIMITS) {
            prop_assert_ne!(&other, &stamped);
            prop_assert_eq!(write(&other), bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(tail in vec(any::<u8>(), 0..300), kind in 0..20u8, plausible in any::<bool>()) {
        let mut bytes = tail;
        if plausible && bytes.len() >= HEADER {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            bytes[4] = kind;
            bytes[5] &= 1;
            bytes[38..40].fill(0);
            bytes[44..48].fill(0);
        }
        let _ = frame_len(&bytes, LIMITS);
        let _ = header(&bytes);
        let _ = decode(Bytes::from(bytes), LIMITS);
    }
}

/// One frame of every kind, small enough to damage exhaustively.
fn samples() -> Vec<Stamped> {
    let object = ObjectId { owner: NodeUid(0xA1), creator: NodeUid(0xB2), create_no: 3 };
    let inline = |dtype, shape: Vec<usize>, bytes: &'static [u8]| Segment {
        dtype,
        shape,
        data: SegmentData::Inline(Bytes::from_static(bytes)),
    };
    let payload = Payload {
        refs: vec![object],
        body: Body::Inline(Bytes::from_static(b"body")),
        segments: vec![
            inline(DType::Bool, vec![3], &[0, 1, 1]),
            inline(DType::F32, vec![1, 1], &[1, 2, 3, 4]),
        ],
        transfer: 0,
    };
    let chunked = Payload {
        refs: vec![],
        body: Body::Chunked,
        segments: vec![Segment { dtype: DType::I64, shape: vec![5, 0], data: SegmentData::Chunked }],
        transfer: 7,
    };
    let (trace, name) = (Trace { trace_id: 1, span_id: 2 }, 4);
    let target = Target::Message { object, name };
    let call = |call_id| Call { call_id, target, timeout_ms: 5, trace, payload: payload.clone() };
    let reply = |payload| Reply { call_id: 9, status: Status::Failed, payload };
    let frames = vec![
        Frame::Name(Name { index: 1, kind: NameKind::Type, path: "a::B".into(), schema: 8 }),
        Frame::Peer(PeerInfo {
            uid: NodeUid(1),
            name: "näme".into(),
            addresses: vec!["a:1".into(), "b:2".into()],
        }),
        Frame::Create(Create {
            create_no: 1,
            source: Source::Copy { name },
            trace,
            payload: chunked.clone(),
        }),
        Frame::Call(call(6)),
        Frame::Cast(call(0)),
        Frame::Reply(reply(payload.clone())),
        Frame::Item(reply(chunked)),
        Frame::End(reply(Payload::default())),
        Frame::Cancel { call_id: 5 },
        Frame::Claim(vec![object, object]),
        Frame::Release(vec![(object, Stamp { session_no: 1, seq: 2 })]),
        Frame::Gone(vec![(object, GoneReason::Freed), (object, GoneReason::Died("why".into()))]),
        Frame::Chunk(Chunk {
            transfer: 1,
            part: 1,
            dtype: DType::U16,
            total: 8,
            bytes: Bytes::from_static(&[1, 2]),
        }),
        Frame::Credit { calls: 100, bytes: 200 },
        Frame::Leave(LeaveStage::Leaving),
        Frame::Ack(Ack { session_no: 1, at: 2, exceptions: vec![NodeUid(3)] }),
        Frame::More { call_id: 5, items: 16 },
        Frame::InventoryBegin { next_create: 4, seen: Stamp { session_no: 2, seq: 3 } },
        Frame::InventoryItems(vec![object]),
        Frame::InventoryEnd,
        Frame::Heartbeat(Heartbeat {
            uid: NodeUid(7),
            session_no: 1,
            nonce: 2,
            asks: 3,
            clear: 4,
            listed: Digest { count: 5, hash: 6 },
            ack: 8,
            at: 9,
        }),
        Frame::HeartbeatEcho(HeartbeatEcho { uid: NodeUid(7), session_no: 1, nonce: 2 }),
    ];
    assert!(frames.iter().map(Kind::of).eq(Kind::ALL));
    let seq = |frame: &Frame| if Kind::of(frame).in_sequence() { 11 } else { 0 };
    frames.into_iter().map(|frame| Stamped { seq: seq(&frame), ack: 12, settled: 13, frame }).collect()
}

#[test]
fn every_kind_round_trips() {
    for stamped in samples() {
        assert_eq!(decode(write(&stamped), LIMITS).unwrap(), stamped);
    }
}

#[test]
fn a_frame_cut_short_anywhere_is_refused() {
    for stamped in samples() {
        let bytes = write(&stamped);
        for end in 0..bytes.len() {
            let short = bytes.slice(..end);
            assert!(frame_len(&short, LIMITS).unwrap().is_none_or(|len| len == bytes.len()));
            assert!(decode(short.clone(), LIMITS).is_err(), "{stamped:?} cut to {end}");
            // The same with a length that agrees.
            if end >= 4 {
                let mut lying = short.to_vec();
                lying[..4].copy_from_slice(&(end as u32).to_le_bytes());
                assert!(decode(Bytes::from(lying), LIMITS).is_err(), "{stamped:?} made {end} long");
            }
        }
    }
}

#[test]
fn every_wrong_byte_is_an_error_or_another_frame() {
    for stamped in samples() {
        let good = write(&stamped).to_vec();
        for at in 0..good.len() {
            for flip in 1..=255u8 {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let bad = Bytes::from(bad);
                if let Ok(other) = decode(bad.clone(), LIMITS) {
                    assert_eq!(write(&other), bad, "byte {at} of {stamped:?}");
                }
            }
        }
    }
}

#[test]
fn anything_after_the_end_is_refused() {
    for stamped in samples() {
        let mut bytes = write(&stamped).to_vec();
        bytes.push(0);
        assert!(matches!(decode(Bytes::from(bytes.clone()), LIMITS), Err(DecodeError::Length { .. })));
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        assert_eq!(decode(Bytes::from(bytes), LIMITS), Err(DecodeError::Trailing(1)), "{stamped:?}");
    }
}

/// The bytes of version 1. If this test has to change, so has [`PROTOCOL_VERSION`].
#[test]
fn golden_call() {
    assert_eq!(PROTOCOL_VERSION, 1);
    let object = ObjectId { owner: NodeUid(0x0A), creator: NodeUid(0x0B), create_no: 0x0C };
    let frame = Frame::Call(Call {
        call_id: 0x21,
        target: Target::Message { object, name: 0x22 },
        timeout_ms: 0x1234,
        trace: Trace { trace_id: 0x23, span_id: 0x24 },
        payload: Payload {
            refs: vec![ObjectId { owner: NodeUid(0x0D), creator: NodeUid(0x0E), create_no: 0x0F }],
            body: Body::Inline(Bytes::from_static(b"hi")),
            segments: vec![Segment {
                dtype: DType::U16,
                shape: vec![2],
                data: SegmentData::Inline(Bytes::from_static(&[1, 0, 2, 0])),
            }],
            transfer: 0,
        },
    });
    #[rustfmt::skip]
    let golden: Vec<u8> = [
        // length, kind, flags, refs; seq; ack; settled
        &[4, 1, 0, 0, 4, 0, 1, 0][..], &[0x31, 0, 0, 0, 0, 0, 0, 0], &[0x32, 0, 0, 0, 0, 0, 0, 0],
        &[0x33, 0, 0, 0, 0, 0, 0, 0],
        // body, segments, 0; transfer, 0
        &[2, 0, 0, 0, 1, 0, 0, 0], &[0; 8],
        // reference table
        &[0x0D, 0, 0, 0, 0, 0, 0, 0], &[0; 8], &[0x0E, 0, 0, 0, 0, 0, 0, 0], &[0; 8],
        &[0x0F, 0, 0, 0, 0, 0, 0, 0],
        // call id; timeout; trace id; span id; target, 0, name; object
        &[0x21, 0, 0, 0, 0, 0, 0, 0], &[0x34, 0x12, 0, 0, 0, 0, 0, 0], &[0x23, 0, 0, 0, 0, 0, 0, 0], &[0; 8],
        &[0x24, 0, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0, 0x22, 0, 0, 0],
        &[0x0A, 0, 0, 0, 0, 0, 0, 0], &[0; 8], &[0x0B, 0, 0, 0, 0, 0, 0, 0], &[0; 8],
        &[0x0C, 0, 0, 0, 0, 0, 0, 0],
        // descriptor: dtype, ndim, flags, 0, 0; dim
        &[10, 1, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0, 0, 0, 0, 0],
        // body; padding from 194 to 256; segment
        b"hi", &[0; 62], &[1, 0, 2, 0],
    ]
    .concat();
    let bytes = joined(&encode(0x31, 0x32, 0x33, &frame, LIMITS).unwrap());
    assert_eq!(bytes, golden);
    assert_eq!(decode(bytes, LIMITS).unwrap().frame, frame);
}

#[test]
fn large_data_is_not_copied_and_small_frames_are_one_part() {
    let big = Bytes::from(vec![1; 5000]);
    let inline = |bytes: Bytes| Segment {
        dtype: DType::U8,
        shape: vec![bytes.len()],
        data: SegmentData::Inline(bytes),
    };
    let reply = |body: &Bytes, segments| {
        let payload = Payload { body: Body::Inline(body.clone()), segments, ..Payload::default() };
        encode(1, 0, 0, &Frame::Reply(Reply { call_id: 1, status: Status::Ok, payload }), LIMITS).unwrap()
    };
    let small = reply(&big.slice(..4096), vec![inline(big.slice(..100)), inline(big.slice(..1023))]);
    assert_eq!(small.part_count(), 1);

    let large = reply(&big, vec![inline(big.slice(..1024)), inline(big.slice(1..2)), inline(big.clone())]);
    let same = large.parts().filter(|part| part.as_ptr() == big.as_ptr()).count();
    assert_eq!(same, 3);
    // Head, body, padding, segment, small segment with its padding, segment.
    assert_eq!(large.part_count(), 6);

    let bytes = joined(&large);
    let range = bytes.as_ptr_range();
    let Frame::Reply(reply) = decode(bytes.clone(), LIMITS).unwrap().frame else { panic!("not a reply") };
    for segment in &reply.payload.segments {
        let SegmentData::Inline(data) = &segment.data else { panic!("not inline") };
        assert!(range.contains(&data.as_ptr()), "decoding copied");
        assert_eq!((data.as_ptr() as usize - range.start as usize) % 64, 0, "not aligned in the frame");
    }
}
