package tally

// Sums are decisions that were made. Allowed and what the buckets themselves count are together the
// hits admitted. So a bucket whose count changes by anything but one hit takes the difference from
// Allowed, which may wrap around: one hit of cost 3 adds 3 there, and -2 here.
type Sums struct {
	Allowed, Denied uint64
	Held            uint64 // cost
}

// Moved notes that the count of a bucket has changed by so much, for so many hits admitted.
func (s *Sums) Moved(by, hits int64) { s.Allowed += uint64(hits - by) }
