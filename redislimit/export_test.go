package redislimit

import (
	"context"
	"time"
)

// SortedSet is NewSortedSetCounterStrategy for any Store.
func SortedSet(s *Store) *Strategy { return s.sortedSet() }

// WithScript returns a copy of s with the given script.
func WithScript(s *Strategy, text string) *Strategy {
	other := *s
	other.script = newScript(text, s.script.values)
	return &other
}

// Digest returns the SHA-1 digest of the script of s.
func Digest(s *Strategy) string { return s.script.digest.(string) }

// Beat makes one more beat of h.
func Beat(ctx context.Context, h *Heartbeat) error { return h.beat(ctx) }

// SetClock sets the clock of this process by which a Calendar sends windows.
func SetClock(s *Calendar, now func() time.Time) { s.protocol.(*dated).now = now }
