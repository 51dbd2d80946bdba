package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What is nested up to the bound loads, and what is nested deeper is refused with its position.
func TestDepthIsBounded(t *testing.T) {
	nested := func(open, innermost, end string, depth int) string {
		return strings.Repeat(open, depth) + innermost + strings.Repeat(end, depth)
	}
	metadata := func(depth int) string {
		return "[{key: k, metadata: {m: " + nested("[", "1", "]", depth) + "}}]"
	}
	maps := func(depth int) string {
		return "[{key: k, metadata: " + nested("{a: ", "1", "}", depth) + "}]"
	}
	for _, row := range []struct {
		name        string
		descriptors string
		want        string // of the error; "" if it loads
	}{
		{"descriptors", nested("[{key: k, descriptors: ", "[]", "}]", maxDepth), ""},
		{"descriptors, one more", nested("[{key: k, descriptors: ", "[]", "}]", maxDepth+1),
			"descriptors are nested more than 1000 deep"},
		{"lists of metadata", metadata(maxDepth - 1), ""},
		{"lists of metadata, one more", metadata(maxDepth),
			"error parsing metadata: nested more than 1000 deep"},
		{"maps of metadata", maps(maxDepth), ""},
		{"maps of metadata, one more", maps(maxDepth + 1),
			"error parsing metadata: nested more than 1000 deep"},
		{"lists without an end", strings.Repeat("[", 100_000), "exceeded max depth"},
		{"maps without an end", strings.Repeat("{a: ", 100_000), "exceeded max depth"},
		{"aliases of aliases", "[{key: k, metadata: {a: &a [x], " +
			"b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a], c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b], " +
			"d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c], e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d], " +
			"f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e], g: [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]}}]",
			"aliases make it more than"},
		{"an alias of itself", "&a [{key: k, descriptors: *a}]",
			"descriptors are nested more than 1000 deep"},
	} {
		_, err := (&Loader{}).Parse(File{Name: "x", Data: []byte("domain: d\ndescriptors: " + row.descriptors)})
		if row.want == "" {
			assert.NoError(t, err, row.name)
			continue
		}
		assert.ErrorContains(t, err, row.want, row.name)
	}
}
