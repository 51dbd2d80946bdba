package overload

import "fmt"

// Look says how many places are in use for a class, and how many of them a caller has.
type Look struct {
	Class          Class
	InFlight, Most int // in flight, of all classes; so many of them admit one more of Class
	Holds, Share   int // of the caller, and the most that it may hold; 0: no share yet
}

// Refuses reports whether a request of the caller would be refused.
func (l Look) Refuses() bool { return l.InFlight >= l.Most || l.Share > 0 && l.Holds >= l.Share }

// String returns l in words.
func (l Look) String() string { return l.Of("the caller") }

// Of returns l in words, of a caller with a name: "full: 25 of 25 for normal; ann holds 4 of at
// most 3".
func (l Look) Of(name string) string {
	said := fmt.Sprintf("%d of %d for %s", l.InFlight, l.Most, l.Class)
	if l.InFlight >= l.Most {
		said = "full: " + said
	}
	said += fmt.Sprintf("; %s holds %d", name, l.Holds)
	if l.Share > 0 {
		said += fmt.Sprintf(" of at most %d", l.Share)
	}
	return said
}
