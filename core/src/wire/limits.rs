//! How large anything on the wire may be. Knows sizes, not layouts.

/// What a decoder accepts and an encoder produces. Sizes are in bytes, unless a field says otherwise.
///
/// Peers do not negotiate these: one that raises a limit must raise it on every node it talks to. A
/// limit may be set to anything; where the layout has less room (16-bit counts and string lengths,
/// 32-bit frames), the layout's own bound holds too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A whole frame of any kind: one full chunk, or a full reference table with all descriptors.
    pub frame: usize,
    /// A whole frame of a control kind: see [`Kind::is_control`](super::Kind::is_control).
    pub control: usize,
    /// A message's body, also when it comes in chunks. An inline body must fit `frame` besides.
    pub body: usize,
    /// The bytes of one chunk.
    pub chunk: usize,
    /// Entries of a message's reference table.
    pub refs: usize,
    /// Segments of a message.
    pub segments: usize,
    /// Axes of a segment.
    pub ndim: usize,
    /// A [`Name`](super::Name)'s path.
    pub path: usize,
    /// A node's name.
    pub name: usize,
    /// Addresses of a node.
    pub addresses: usize,
    /// One address.
    pub address: usize,
    /// Entries of one Claim, Release or Gone. With the default, that many always fit `control`.
    pub objects: usize,
    /// Owners excepted in one [`Ack`](super::Ack).
    pub exceptions: usize,
    /// The text in a [`GoneReason`](super::GoneReason); the encoder cuts off what is beyond it.
    pub text: usize,
    /// A message's body and segments together, all chunks included.
    pub message: u64,
    /// Chunked messages of one session that may be incomplete at a time.
    pub transfers: usize,
}

impl Limits {
    /// The defaults, as a constant.
    pub const DEFAULT: Limits = Limits {
        frame: (4 << 20) + (128 << 10),
        control: 64 << 10,
        body: 16 << 20,
        chunk: 4 << 20,
        refs: 1024,
        segments: 1024,
        ndim: 8,
        path: 1024,
        name: 256,
        addresses: 16,
        address: 256,
        objects: 1024,
        exceptions: 1024,
        text: 1024,
        message: 4 << 30,
        transfers: 64,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::DEFAULT
    }
}
