package rules

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/weirgo/weir/overload"
)

// Rule is a descriptor of a rules file that has a rate_limit. It is read-only.
type Rule struct {
	Domain string
	Path   string // the entries down to the rule, formatted by FormatEntries
	Limit  Limit
	Shadow bool // shadow_mode: count and report, but deny nothing
	// quota_mode: denies only if every quota rule that the request matches is over its limit
	Quota bool

	// Class is how important the requests are that the rule is about, to an overload.Guard.
	Class overload.Class

	// Replaces names the rules that do not apply to a request that also matches this rule.
	Replaces []string

	File         string
	Line, Column int // of the descriptor

	node       *node
	replacesAt []position // of Replaces
	method     int        // index in Set.methods
	// by level: the pattern that replaces the value in the key, or ""; nil if no level has one
	shared []string
}

// String describes the rule: its path, limit and flags, and its place in the file.
func (r *Rule) String() string {
	s := r.Path + ": " + r.Limit.String()
	if r.shared != nil {
		s += ", values of the wildcard share a counter"
	}
	if r.Shadow {
		s += ", shadow_mode"
	}
	if r.Quota {
		s += ", quota_mode"
	}
	if r.Class != overload.Normal {
		s += ", " + r.Class.String()
	}
	if len(r.Replaces) > 0 {
		s += ", replaces " + strings.Join(r.Replaces, ", ")
	}
	if r.Limit.Name != "" {
		s += fmt.Sprintf(" (named %s)", r.Limit.Name)
	}
	return fmt.Sprintf("%s at %s:%d", s, r.File, r.Line)
}

// Name returns the rule's name, or its path if it has no name. Names need not be unique; paths are
// unique within a domain.
func (r *Rule) Name() string { return cmp.Or(r.Limit.Name, r.Path) }

// Metadata returns the descriptor's metadata without weir's own settings: a map with values of the
// types map, slice, string, int64, uint64, float64, bool and nil. It is nil if there is none. The
// caller must not change it.
func (r *Rule) Metadata() map[string]any { return r.node.metadata }
