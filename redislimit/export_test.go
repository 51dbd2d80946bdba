package redislimit

// SortedSet is the strategy of NewSortedSetCounterStrategy on a Store of any settings.
func SortedSet(s *Store) *Strategy { return s.sortedSet() }
