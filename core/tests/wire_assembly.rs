//! Chunked messages: put together when they hold together, refused when they do not.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use bytes::Bytes;
use proptest::prelude::*;
use rref_core::wire::*;

const LIMITS: &Limits = &Limits::DEFAULT;

fn piece(transfer: u32, part: u16, dtype: DType, total: u64, bytes: &[u8]) -> Chunk {
    Chunk { transfer, part, dtype, total, bytes: Bytes::copy_from_slice(bytes) }
}

fn chunked(dtype: DType, shape: &[usize]) -> Segment {
    Segment { dtype, shape: shape.to_vec(), data: SegmentData::Chunked }
}

fn payload(transfer: u32, body: Body, segments: Vec<Segment>) -> Payload {
    Payload { refs: vec![], body, segments, transfer }
}

#[track_caller]
fn refused(result: Result<(), DecodeError>, because: &str) {
    match result {
        Err(DecodeError::Transfer { what, .. }) => assert_eq!(what, because),
        other => panic!("expected \"{because}\", got {other:?}"),
    }
}

#[test]
fn parts_become_a_message() {
    let mut assembly = Assembly::new();
    let mut take = |part, dtype, total, bytes: &[u8]| {
        assembly.chunk(piece(3, part, dtype, total, bytes), LIMITS).unwrap();
    };
    // Pieces of different parts may alternate.
    take(0, DType::U8, 5, b"bod");
    take(2, DType::F32, 8, &1.5f32.to_le_bytes());
    take(0, DType::U8, 5, b"y!");
    take(3, DType::Bool, 0, &[]);
    take(2, DType::F32, 8, &(-2.5f32).to_le_bytes());
    assert_eq!((assembly.open_bytes(), assembly.open_transfers()), (13, 1));

    let inline = SegmentData::Inline(Bytes::from_static(&[9]));
    let first = Segment { dtype: DType::U8, shape: vec![1], data: inline };
    let segments = vec![first.clone(), chunked(DType::F32, &[2, 1]), chunked(DType::Bool, &[0, 7])];
    let mut message = payload(3, Body::Chunked, segments);
    assembly.finish(&mut message, LIMITS).unwrap();
    assert_eq!(message.body, Body::Inline(Bytes::from_static(b"body!")));
    assert_eq!(message.segments[0], first);
    assert_eq!(message.segments[1].data, SegmentData::Typed(Storage::F32(vec![1.5, -2.5])));
    assert_eq!(message.segments[2].data, SegmentData::Typed(Storage::Bool(vec![])));
    assert_eq!((message.transfer, assembly.open_bytes(), assembly.open_transfers()), (0, 0, 0));
}

#[test]
fn a_message_without_a_transfer_is_left_alone() {
    let mut assembly = Assembly::new();
    assembly.chunk(piece(1, 0, DType::U8, 2, &[1]), LIMITS).unwrap();
    let mut message = payload(0, Body::default(), vec![]);
    assembly.finish(&mut message, LIMITS).unwrap();
    assert_eq!((message, assembly.open_bytes()), (payload(0, Body::default(), vec![]), 1));
    assembly.clear();
    assert_eq!(assembly, Assembly::new());
}

#[test]
fn pieces_that_contradict_each_other_are_refused() {
    let mut assembly = Assembly::new();
    assembly.chunk(piece(1, 1, DType::U16, 8, &[0; 4]), LIMITS).unwrap();
    let before = assembly.clone();
    let mut next = |chunk, because| {
        refused(assembly.chunk(chunk, LIMITS), because);
        assert_eq!(assembly, before);
    };
    next(piece(1, 1, DType::U16, 10, &[0; 4]), "the total has changed");
    next(piece(1, 1, DType::I16, 8, &[0; 4]), "the element type has changed");
    next(piece(1, 1, DType::U16, 8, &[0; 6]), "more bytes than its total");
    next(piece(0, 1, DType::U16, 8, &[0; 2]), "the number 0");
    next(piece(1, 1, DType::U16, 8, &[0; 3]), "an element is cut in two");
    next(piece(1, 0, DType::U16, 8, &[0; 2]), "a body is bytes");
    next(piece(1, 1, DType::U16, 8, &[]), "the piece is empty");
    next(piece(1, 1025, DType::U16, 8, &[0; 2]), "more parts than segments");
    // A piece after the last one, as one that was sent twice would be.
    assembly.chunk(piece(1, 1, DType::U16, 8, &[0; 4]), LIMITS).unwrap();
    refused(assembly.chunk(piece(1, 1, DType::U16, 8, &[0; 4]), LIMITS), "more bytes than its total");
    let bad = assembly.chunk(piece(1, 2, DType::Bool, 2, &[1, 2]), LIMITS);
    assert_eq!(bad, Err(DecodeError::Storage(StorageError::Bool)));
}

#[test]
fn transfers_and_their_totals_are_bounded() {
    let mut assembly = Assembly::new();
    for transfer in 1..=LIMITS.transfers as u32 {
        assembly.chunk(piece(transfer, 0, DType::U8, 2, &[1]), LIMITS).unwrap();
    }
    refused(assembly.chunk(piece(65, 0, DType::U8, 2, &[1]), LIMITS), "too many open transfers");
    assembly.chunk(piece(64, 0, DType::U8, 2, &[1]), LIMITS).unwrap();
    assembly.finish(&mut payload(64, Body::Chunked, vec![]), LIMITS).unwrap();
    assembly.chunk(piece(65, 0, DType::U8, 2, &[1]), LIMITS).unwrap();

    let mut assembly = Assembly::new();
    assembly.chunk(piece(1, 1, DType::U8, LIMITS.message - 1, &[1]), LIMITS).unwrap();
    assembly.chunk(piece(1, 2, DType::U8, 1, &[1]), LIMITS).unwrap();
    refused(assembly.chunk(piece(1, 3, DType::U8, 1, &[1]), LIMITS), "the message is too large");
}

#[test]
fn a_message_that_does_not_fit_its_parts_is_refused() {
    let finish = |chunks: &[Chunk], body: Body, segments: Vec<Segment>| {
        let mut assembly = Assembly::new();
        chunks.iter().for_each(|chunk| assembly.chunk(chunk.clone(), LIMITS).unwrap());
        let result = assembly.finish(&mut payload(1, body, segments), LIMITS);
        assert_eq!(assembly.open_bytes(), 0);
        result
    };
    let half = piece(1, 1, DType::U16, 8, &[0; 4]);
    let whole = piece(1, 1, DType::U16, 8, &[0; 8]);
    let body = piece(1, 0, DType::U8, 2, &[1]);
    let inline = Body::default;
    refused(finish(&[], Body::Chunked, vec![]), "the part is missing");
    refused(finish(&[body], Body::Chunked, vec![]), "the part is incomplete");
    refused(finish(&[half], inline(), vec![chunked(DType::U16, &[4])]), "the part is incomplete");
    let parts = std::slice::from_ref(&whole);
    refused(finish(parts, inline(), vec![chunked(DType::I16, &[4])]), "not the segment's element type");
    refused(finish(parts, inline(), vec![chunked(DType::U16, &[5])]), "not the bytes of the shape");
    refused(finish(parts, inline(), vec![]), "nothing refers to the part");
    refused(finish(parts, Body::Chunked, vec![chunked(DType::U16, &[4])]), "the part is missing");
    finish(parts, inline(), vec![chunked(DType::U16, &[2, 2])]).unwrap();
}

#[test]
fn every_element_type_is_read_little_endian() {
    for code in 1..=13 {
        let dtype = DType::from_code(code).unwrap();
        let size = dtype.size();
        let mut one = vec![0; size];
        one[0] = 1;
        let storage = Storage::from_le_bytes(dtype, &one.repeat(3)).unwrap();
        assert_eq!((storage.len(), storage.dtype()), (3, dtype));
        if size > 1 {
            let cut = Storage::from_le_bytes(dtype, &one[1..]);
            assert_eq!(cut, Err(StorageError::Length { dtype, bytes: size - 1 }));
        }
    }
    let read = |dtype, bytes: &[u8]| Storage::from_le_bytes(dtype, bytes);
    assert_eq!(read(DType::I32, &[0xFE, 0xFF, 0xFF, 0xFF]), Ok(Storage::I32(vec![-2])));
    assert_eq!(read(DType::U64, &[1, 2, 0, 0, 0, 0, 0, 0]), Ok(Storage::U64(vec![0x201])));
    assert_eq!(read(DType::F16, &[0x00, 0x3C]), Ok(Storage::F16(vec![half::f16::ONE])));
    assert_eq!(read(DType::BF16, &[0x80, 0x3F]), Ok(Storage::BF16(vec![half::bf16::ONE])));
    assert_eq!(read(DType::Bool, &[1, 0]), Ok(Storage::Bool(vec![true, false])));
    assert_eq!(read(DType::Bool, &[1, 2]), Err(StorageError::Bool));
}

proptest! {
    /// However a part is cut, the whole comes out.
    #[test]
    fn cuts_do_not_matter(values in prop::collection::vec(any::<u32>(), 1..2000), step in 1..700usize) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut assembly = Assembly::new();
        for cut in bytes.chunks(step * 4) {
            assembly.chunk(piece(1, 1, DType::U32, bytes.len() as u64, cut), LIMITS).unwrap();
        }
        let mut message = payload(1, Body::default(), vec![chunked(DType::U32, &[values.len()])]);
        assembly.finish(&mut message, LIMITS).unwrap();
        prop_assert_eq!(&message.segments[0].data, &SegmentData::Typed(Storage::U32(values)));
    }
}
