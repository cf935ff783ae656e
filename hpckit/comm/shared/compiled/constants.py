"""What the collectives on shared memory pass around: the fields of their records, and what they return.

Records are int64 arrays. A group record is private to a rank and holds where the group's shared segment is mapped and
how far this rank has come; a call record holds one bound collective. Times are in ns, addresses and sizes in bytes.
"""

# ---- a group record
(
    SELF,  # address of this record
    RANK,
    SIZE,
    LINES,  # address of the entry lines: [rank][parity of the sequence][LINE]
    COUNTERS,  # address of the counters: [rank][DONE, FILLED, REDUCED, COPIED, SHARED][LINE]
    FLAT,  # address of the first rank's slots of flat collectives: [parity][FLAT_BYTES]
    FLAT_BYTES,
    STAGE,  # address of the first rank's staging slots: [SLOTS][STAGE_STRIDE]
    STAGE_BYTES,  # of a piece: what a rank stages at a time
    STAGE_STRIDE,  # a piece, and behind it the part of it that the rank has reduced
    ABORT,  # address of the word that is set where a rank gave up
    SEQUENCE,  # collectives that this rank has entered
    PIECE,  # pieces that have gone through the staging slots
    SPINS,  # looks at a flag before the core is yielded
    DEADLINE,
    PROCESSES,  # address of the process numbers, 0 where they say nothing
    SOURCES,  # address of int64[SIZE]
    TARGETS,  # int64[SIZE + 1]
    FACTORS,  # float64[SIZE]
    SCRATCH,  # address of SCRATCH_BYTES
    LATE,  # the rank that was waited for in vain
    CLOCK,  # and the next one: what the clock is read into
    _NANOSECONDS,
    READS,  # address of [SIZE][READ_BYTES]: what is read from the memory of others
    READ_BYTES,
    VECTORS,  # address of int64[4]: from where to where
    SHOWN,  # 1 where this rank shows that it has come to the collective after SEQUENCE
    BEGUN,  # when it came, where it does not wait
    SEEN,  # when it looked at the processes of the others
    PART_BYTES,  # from a rank's slots to those of the next
    PLACES,  # address of int64[PLACE_COUNT][first address, end, number]: this rank's parts of symmetric buffers
    PLACE_COUNT,
    AT,  # where it stands in a collective that it has entered and not left, 0 outside of one
    GROUP_FIELDS,
) = range(34)

# ---- a call record
(
    GROUP,  # address of the group record
    SIGNATURE,  # what the ranks must agree on: operation, algorithm, op, kind, root
    COUNT,  # elements, on which they must agree too
    SYMMETRIC,  # number of the symmetric buffer, 0 for a private one
    OFFSET,  # of the data in it, or their address: may differ from rank to rank
    WEIGHT,  # bits of a float64
    ITEM,  # bytes of an element
    SEND,  # address of what is sent, and of the result where it is in place
    RECV,  # address of the result
    BASES,  # address of int64[SIZE]: where the parts of the symmetric buffer are mapped
    REDUCER,  # address of a kernel of `simd.reducer`
    AVERAGED,  # 1 where weights are to be turned into factors
    ROOT,
    STARTS,  # address of int64[SIZE + 1]: where the blocks start in the longer of the two buffers, in elements
    PATIENCE,  # looks at the flags of the others before it returns NOT_YET, 0 to wait for them
    FROM,  # as STARTS, for what arrives in an all-to-all
    WITHIN,  # number of the symmetric buffer that what is sent lies in, 0 where it lies in none
    BLOCK_AT,  # bytes from what is sent to what is received, where they may overlap; APART where they may not
    SENT,  # what is sent: ARRAY_FIELDS from here on
    TAKEN,  # the same of what is received, where that is another array
    CALL_FIELDS,
) = (*range(19), 23, 28)

# What an array must be so that a call takes it. Its class and its dtype are addresses of objects of Python.
CLASS, DTYPE, ELEMENTS, BYTES, FLAGS, ARRAY_FIELDS = range(6)
NO_ARRAY = 0  # as the dtype of None
APART = 2**62

CACHE_LINE = 64
LINE = 128  # bytes: two cache lines, which processors fetch together
INLINE = 48  # of a line is in use; the rest holds the data of the smallest collectives
SLOTS = 3
DONE, FILLED, REDUCED, COPIED, SHARED, COUNTERS_OF_RANK = range(6)
BLOCK = 256  # elements that are reduced at a time, in L1
SCRATCH_BYTES = 8 * BLOCK

# ---- what a collective returns
# (UNFIT: nothing was done, since the arrays are not such as the call takes.)
GOOD, MISMATCH, UNMATCHED, NO_WEIGHT, STALLED, LOST, ABORTED, NOT_YET, UNFIT = range(9)

OPS = ("sum", "max", "min", "mean", "average", "prod")
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
KINDS = FLOATS + INTEGERS
