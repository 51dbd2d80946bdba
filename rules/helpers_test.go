package rules_test

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// files returns a file system with the given names and texts, which alternate.
func files(namesAndTexts ...string) fstest.MapFS {
	fsys := make(fstest.MapFS)
	for i := 0; i < len(namesAndTexts); i += 2 {
		fsys[namesAndTexts[i]] = &fstest.MapFile{Data: []byte(namesAndTexts[i+1])}
	}
	return fsys
}

// load loads rules, which must be valid.
func load(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load(files("r.yaml", text))
	require.NoError(t, err)
	return set
}

// rewritten returns set as it is when it is written and loaded again. It must be equal.
func rewritten(t testing.TB, set *rules.Set) *rules.Set {
	t.Helper()
	text, err := set.YAML()
	require.NoError(t, err)
	again, err := rules.Load(files("r.yaml", string(text)))
	require.NoError(t, err, "%s", text)
	assert.Empty(t, set.Diff(again), "%s", text)
	return again
}

// entries parses a descriptor such as key=value,key=value; "" means no entries.
func entries(t testing.TB, text string) []rules.Entry {
	t.Helper()
	if text == "" {
		return nil
	}
	list, err := rules.ParseEntries(text)
	require.NoError(t, err)
	return list
}

// start is 40 s before the end of a minute, and of an hour.
var start = time.Date(2026, 7, 1, 12, 59, 20, 0, time.UTC)

// world is an engine with a virtual clock.
type world struct {
	testing.TB
	now    time.Time
	engine *rules.Engine
}

func newWorld(t testing.TB, text string, cfg rules.Config) *world {
	t.Helper()
	w := &world{TB: t, now: start}
	cfg.Now = func() time.Time { return w.now }
	var err error
	w.engine, err = rules.New(load(t, text), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { w.engine.Close() })
	return w
}

// ask decides on a request with these descriptors in domain d.
func (w *world) ask(descriptors ...rules.Descriptor) *rules.Response {
	w.Helper()
	resp, err := w.engine.Decide(context.Background(),
		&rules.Request{Domain: "d", Descriptors: descriptors})
	require.NoError(w, err)
	require.NoError(w, resp.Lost)
	require.Len(w, resp.Statuses, len(descriptors))
	return resp
}

// hit is a descriptor with these entries and the default cost.
func (w *world) hit(text string) rules.Descriptor {
	return rules.Descriptor{Entries: entries(w, text)}
}

// hits is a descriptor with these entries and a cost of n.
func (w *world) hits(n uint64, text string) rules.Descriptor {
	return rules.Descriptor{Entries: entries(w, text), Hits: n, HasHits: true}
}

// assertExplains checks that Explain has a step for each entry of a descriptor with a rule, and
// ends with that of Match.
func assertExplains(t *testing.T, set *rules.Set, domain string, entries []rules.Entry) {
	t.Helper()
	x := set.Explain(domain, entries)
	r := set.Match(domain, entries)
	if r == nil {
		assert.Contains(t, x, "\nno limit: ")
		return
	}
	assert.True(t, strings.HasSuffix(x, "\n"+r.String()+"\n"), x)
	assert.GreaterOrEqual(t, strings.Count(x, " -> "), len(entries), x)
}
