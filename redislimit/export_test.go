package redislimit

// SortedSet is the strategy of NewSortedSetCounterStrategy on a Store of any settings.
func SortedSet(s *Store) *Strategy { return s.sortedSet() }

// WithScript is s with another text of its script.
func WithScript(s *Strategy, text string) *Strategy {
	other := *s
	other.script = newScript(text, s.script.values)
	return &other
}

// Digest is the SHA-1 that a server knows the script of s by.
func Digest(s *Strategy) string { return s.script.digest.(string) }
