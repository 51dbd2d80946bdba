package cli

import "fmt"

// FlagError is a mistake in the value of a flag, or in the values of several together. A file that
// has set one of them can say where.
type FlagError struct {
	Flags []string
	Item  int // of the values of a list
	Err   error
}

// Error returns the text of Err.
func (e *FlagError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FlagError) Unwrap() error { return e.Err }

// Wrong returns a FlagError whose text is the flag as it is typed, and what is wrong.
func Wrong(flag, format string, args ...any) error {
	return &FlagError{Flags: []string{flag},
		Err: fmt.Errorf("--%s %s", flag, fmt.Sprintf(format, args...))}
}

// Excluded is the error of two flags that exclude each other.
func Excluded(one, other string) error {
	return &FlagError{Flags: []string{one, other},
		Err: fmt.Errorf("--%s and --%s exclude each other: leave out one of them", one, other)}
}
