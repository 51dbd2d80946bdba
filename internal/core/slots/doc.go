// Package slots holds buckets of a fixed size, for look-ups and hits without a lock. It knows no
// algorithm: what the content of a bucket means, and when it expires, a [Meaning] says.
//
// Terminology, from the inside out:
//
//   - ID: names a caller; up to 22 bytes fit a slot, longer ones go on in further slots.
//   - Period: the rest of a key: kind, scale and number, as the words of a slot hold them.
//   - Slot: one bucket in one cache line: a state word, two still words, the key, and a mark.
//   - State word: a generation and a number. Hits replace it by compare-and-swap, without a lock.
//   - Still words: what only changes under the shard's mutex, with a new generation.
//   - Generation: counts in a slot, and never returns: a slot that has used up its generations is
//     not used again.
//   - Epoch: the time in which a slot has one generation: its key and still words stay as they are.
//   - Mark: what tells a bucket from the next one of its key.
//   - Chunk: 128 slots, the unit of memory. It never moves.
//   - Index: finds a slot by its key: open addressing, words of 32 bits.
//   - Shard: the chunks and the index for a part of the keys, with one mutex.
//   - Table: the shards, found by the hash of an ID.
//   - Horizon: the latest reading of the clock at which an expired bucket of a shard was removed,
//     or a key was reported absent. No bucket is made for an earlier one.
//
// Hits without a lock rely on the order of the stores, and so do not see half of a change:
//
//   - Insert stores the key and the still words, then the state word, then the index.
//   - Roll, to another epoch, ends the generation, then stores the still words, then the number,
//     which makes the slot live again.
//   - Release ends the generation by a compare-and-swap that yields the final count, then takes the
//     tallies, then the index.
//
// So a compare-and-swap that finds the state word it expects proves that the key and the still
// words, which were read in between, were those of one epoch; a late hit fails, and searches again.
package slots
