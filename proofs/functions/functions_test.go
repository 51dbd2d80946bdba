package main

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

const source = `package p

// A comment
/* and one
of two lines */

func (s *set[T]) add(n int) { // 2 lines with the end
	for range n { s.each(func() {
		s.n++ }) }
}

func (s *set[T]) len() int { return s.n }

const text = ` + "`" + `three

lines` + "`" + `
`

func TestBlocksBelongToTheInnermostFunction(t *testing.T) {
	all, err := functions("p.go", []byte(source))
	require.NoError(t, err)
	r := reader{files: map[string][]function{"p.go": all}}
	for _, tt := range []struct{ name, block, want string }{
		{"the body of a method", "p.go:7.29,8.16 1 2", "p.go:7 (*set[T]).add"},
		{"a block in it", "p.go:8.16,8.31 1 1", "p.go:7 (*set[T]).add"},
		{"a literal in that", "p.go:9.3,9.8 1 1", "p.go:8 func"},
		{"a method of one line", "p.go:12.28,12.40 1 1", ""},
		{"a block that did not run", "p.go:7.29,8.16 1 0", ""},
		{"another package", "proofs/functions/main.go:1.1,2.2 1 1", ""},
	} {
		got, err := r.function(module + "/" + tt.block)
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.want, got, tt.name)
	}
	_, err = r.function(module + "/p.go:15.1,15.2 1 1")
	assert.ErrorContains(t, err, "in no function")
}

func TestLinesAreThoseWithCode(t *testing.T) {
	assert.Equal(t, 1+4+1+3, linesOf([]byte(source)))
}

// measured is measure of this tree.
var measured = sync.OnceValues(func() ([][][]string, error) {
	root, err := rootDir()
	if err != nil {
		return nil, err
	}
	return measure(root)
})

func TestOnlyTheDecisionIsCounted(t *testing.T) {
	slow.Test(t)
	passed, err := measured()
	require.NoError(t, err)
	for s := range strategies {
		for k, names := range passed[s] {
			assert.NotEmpty(t, names)
			for _, name := range names {
				assert.NotRegexp(t, ` New|\(\*janitor\)\.run|\(\*Limiter\)\.Close`, name,
					"%s, %s", strategies[s].name, kinds[k].name)
			}
		}
		assert.Greater(t, len(passed[s][2]), len(passed[s][0]), "%s: new and known", strategies[s].name)
	}
}
