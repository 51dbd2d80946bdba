package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is a mistake in a rules file.
type Problem struct {
	File         string
	Line, Column int // starting at 1; 0 if the problem concerns the whole file
	Message      string

	// Warning marks problems that do not keep the rules from loading: likely mistakes, and rules
	// that are not portable.
	Warning bool
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
	p.list = append(p.list, &Problem{at.file, at.line, at.column, fmt.Sprintf(format, args...), false})
}

func (p *problems) warnf(at position, format string, args ...any) {
	p.list = append(p.list, &Problem{at.file, at.line, at.column, fmt.Sprintf(format, args...), true})
}

// split sorts the problems by position and returns errors and warnings. What an alias repeats is
// one problem.
func (p *problems) split() (errors, warnings []*Problem) {
	slices.SortStableFunc(p.list, func(a, b *Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column,
			strings.Compare(a.Message, b.Message))
	})
	p.list = slices.CompactFunc(p.list, func(a, b *Problem) bool { return *a == *b })
	for _, q := range p.list {
		if q.Warning {
			warnings = append(warnings, q)
		} else {
			errors = append(errors, q)
		}
	}
	return errors, warnings
}

// suggest returns "; did you mean 'x'?" for the candidate that is most similar to word, or "" if
// none is similar or there are over 1,000, which would take seconds for a file of mistakes.
func suggest(word string, candidates []string) string {
	if len(candidates) > 1000 {
		return ""
	}
	best, least := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c, least); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean '" + best + "'?"
}

// oneOf is suggest, or the candidates if none is near.
func oneOf(word string, candidates []string) string {
	return cmp.Or(suggest(word, candidates), "; want one of "+strings.Join(candidates, ", "))
}

// distance returns the edit distance of a and b: the number of insertions, deletions, substitutions
// and swaps of neighbors that turn one into the other. It returns at most bound.
func distance(a, b string, bound int) int {
	if len(a)-len(b) >= bound || len(b)-len(a) >= bound {
		return bound
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return min(bound, rows[(len(a)+1)%3][len(b)])
}
