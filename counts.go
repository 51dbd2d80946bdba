package weir

// counts identifies where a Strategy counts: a request of one key counts twice in two strategies
// with equal ones. The Limit and the Duration of requests are part of that unless it is bound.
type counts struct {
	of        any // a Limiter, or the counts of a Strategy elsewhere
	series    int64
	scale     int64
	bound     bool
	algorithm string
	plan      string // of tiers; of a Limit elsewhere, the label of its keys
}

// equal reports whether a == b. Where that panics, on types that cannot be compared, it is false.
func equal(a, b any) (ok bool) {
	defer func() { _ = recover() }()
	return a == b
}
