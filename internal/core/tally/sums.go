package tally

// Sums are decisions that were made. Of buckets: Allowed, and what the buckets themselves count, is
// in all the number of hits admitted, so that a bucket which counts more or less by anything but
// one hit takes the difference from Allowed, which may wrap around.
type Sums struct {
	Allowed, Denied uint64
	Held            uint64 // cost
}

// Moved notes that the count of a bucket has changed by so much, for so many hits admitted.
func (s *Sums) Moved(by, hits int64) { s.Allowed += uint64(hits - by) }
