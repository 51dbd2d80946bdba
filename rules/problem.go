package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/doors/similar"
)

// Problem is a mistake in a rules file.
type Problem struct {
	File         string
	Line, Column int // starting at 1; 0 if the problem concerns the whole file
	Message      string

	// Warning marks problems that do not keep the rules from loading: likely mistakes, and rules
	// that are not portable.
	Warning bool

	// LimitsNothing marks warnings of a domain that limits nothing: it has no rule, or no descriptor
	// of its rate_limits reaches one.
	LimitsNothing bool
}

// Error returns the problem as file:line:column: message.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, max(1, p.Column))
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// problems collects errors and warnings.
type problems struct{ list []*Problem }

func (p *problems) errorf(at position, format string, args ...any) {
	p.add(at, format, args).Warning = false
}

func (p *problems) warnf(at position, format string, args ...any) {
	_ = p.add(at, format, args)
}

// add adds a warning.
func (p *problems) add(at position, format string, args []any) *Problem {
	one := &Problem{File: at.file, Line: at.line, Column: at.column, Warning: true,
		Message: fmt.Sprintf(format, args...)}
	p.list = append(p.list, one)
	return one
}

// limitsNothing marks the last warning.
func (p *problems) limitsNothing() { p.list[len(p.list)-1].LimitsNothing = true }

// fatal reports whether there is a problem that is no warning.
func (p *problems) fatal() bool {
	return slices.ContainsFunc(p.list, func(q *Problem) bool { return !q.Warning })
}

// sort sorts the problems by position. What an alias repeats is one problem.
func (p *problems) sort() {
	slices.SortStableFunc(p.list, func(a, b *Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column,
			strings.Compare(a.Message, b.Message))
	})
	p.list = slices.CompactFunc(p.list, func(a, b *Problem) bool { return *a == *b })
}

// suggest returns "; did you mean 'x'?" for the candidate that is most similar to word, or "" if
// none is.
func suggest(word string, candidates []string) string {
	if best := similar.To(word, candidates); best != "" {
		return "; did you mean '" + best + "'?"
	}
	return ""
}

// oneOf is suggest, or the candidates if none is near.
func oneOf(word string, candidates []string) string {
	return cmp.Or(suggest(word, candidates), "; want one of "+strings.Join(candidates, ", "))
}

// position is a place in a rules file.
type position struct {
	file         string
	line, column int
}

// from returns the position for a message about a file.
func (p position) from(file string) string {
	if p.file == file {
		return fmt.Sprintf("at line %d", p.line)
	}
	return fmt.Sprintf("in %s, line %d", p.file, p.line)
}
