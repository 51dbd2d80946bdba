package routes

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/doors/urlpath"
)

// TestShorteningAPathKeepsItsPattern matches random paths as they are and shortened, with long
// segments and with many, and with letters whose lower case has fewer bytes.
func TestShorteningAPathKeepsItsPattern(t *testing.T) {
	table, err := New([]Route{
		{Pattern: "/a/"}, {Pattern: "/a/b/{$}"}, {Pattern: "/users/{id}/reset"}, {Pattern: "/{x}"},
		{Pattern: "/files/{rest...}"}, {Pattern: "POST /Kk"}, {Pattern: "/a/{x}/c/"}, {Pattern: "/k/%C3%A9"},
	}, Keys{Pattern: true})
	require.NoError(t, err)
	pieces := []string{"/", "/", "/", "a", "b", "c", "users", "reset", "files", "x", "k", "%E2%84%AA", "%C3%89",
		"/a", "/b", strings.Repeat("a", 30), strings.Repeat("%E2%84%AA", 9), "%2F", "."}
	rng := rand.New(rand.NewPCG(1, 2))
	shortened := 0
	for range 20_000 {
		var b strings.Builder
		for range rng.IntN(12) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		path := "/" + b.String()
		short := table.shorten(path)
		if short != path {
			shortened++
		}
		assert.LessOrEqual(t, len(short), (table.slashes+1)*(9*table.literal+1))
		for _, fold := range []func(string) string{strings.Clone, urlpath.Lower} {
			for _, mux := range []*http.ServeMux{table.exact, table.folded} {
				require.Equal(t, patternOf(mux, fold(path)), patternOf(mux, fold(short)), path)
			}
		}
	}
	assert.Greater(t, shortened, 1000)
}

func patternOf(mux *http.ServeMux, path string) string {
	r := &http.Request{Method: http.MethodPost, URL: new(url.URL)}
	SetPath(r.URL, opaqueSegments(path))
	_, pattern := mux.Handler(r)
	return pattern
}
