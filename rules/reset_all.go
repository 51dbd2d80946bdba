package rules

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir"
)

// ResetAll deletes the counts of the descriptors of a domain that begin with entries, and returns
// how many that were. If the last entry has no value, it stands for every value; without entries
// all of the domain is reset. progress, which may be nil, and the cost are those of
// [weir.PrefixResetter], of each strategy in turn. A value that shares a counter with others is not
// found by itself, and a key over 256 bytes, which is hashed, not at all. It fails with
// [errors.ErrUnsupported] if a strategy is no [weir.PrefixResetter].
func (e *Engine) ResetAll(
	ctx context.Context, domain string, entries []Entry, progress func(seen, reset int),
) (reset int, err error) {
	prefix := appendPart(nil, ':', domain)
	for i, entry := range entries {
		prefix = appendPart(prefix, ':', entry.Key)
		if entry.Value != "" || i < len(entries)-1 {
			prefix = appendPart(prefix, ':', entry.Value)
		}
	}
	seen := 0
	for _, s := range e.state.Load().known {
		resetter, ok := s.counter.(weir.PrefixResetter)
		if !ok {
			return reset, fmt.Errorf("rules: %s does not implement weir.PrefixResetter: %w",
				weir.NameOf(s.counter), errors.ErrUnsupported)
		}
		before, last := seen, reset
		n, err := resetter.ResetPrefix(ctx, string(prefix), func(found, done int) {
			seen = before + found
			if progress != nil {
				progress(seen, last+done)
			}
		})
		reset += n
		if err != nil {
			return reset, err
		}
	}
	return reset, nil
}
