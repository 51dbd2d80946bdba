package overload

import "fmt"

// Class is how important a request is.
type Class int8

// The classes. The zero value is Normal.
const (
	Sheddable Class = -1 // refused first: exports, crawlers, prefetching
	Normal    Class = 0
	Critical  Class = 1 // refused last: log-ins, payments, health checks
)

// classes is how many there are.
const classes = 3

// ParseClass returns the class of a name: sheddable, normal or critical.
func ParseClass(name string) (Class, error) {
	for c := Sheddable; c <= Critical; c++ {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("overload: the class %q is unknown, want sheddable, normal or critical", name)
}

// index returns the place of c in a list of the classes.
func (c Class) index() int { return int(c - Sheddable) }

// valid reports whether c is one of the classes.
func (c Class) valid() bool { return Sheddable <= c && c <= Critical }

func badClass(c Class) error {
	return fmt.Errorf("overload: the Class %d is unknown, want -1, 0 or 1", int8(c))
}

// String returns the name, in lower case.
func (c Class) String() string {
	if !c.valid() {
		return fmt.Sprintf("class %d", int8(c))
	}
	return [...]string{"sheddable", "normal", "critical"}[c.index()]
}

// Reason is why a request was refused.
type Reason int8

// The reasons.
const (
	ClassFull Reason = iota // the part of the limit that the class may fill is in use
	ShareUsed               // the caller holds its share
)

// reasons is how many there are.
const reasons = 2

// String returns the reason as a word for a label.
func (r Reason) String() string {
	switch r {
	case ClassFull:
		return "full"
	case ShareUsed:
		return "share"
	}
	return fmt.Sprintf("reason %d", int8(r))
}
