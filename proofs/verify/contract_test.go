package verify

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/offenders"
)

// laterVerb is a verb that this release does not have.
const laterVerb weir.Verb = 31

// laterStore is a store that has it, and keeps the numbers of its Requests.
type laterStore struct {
	about weir.About
	asked []weir.Request
}

func newLaterStore() *laterStore {
	s := new(laterStore)
	s.about = weir.About{Of: s, Name: "later", Verbs: weir.VerbsOf(weir.OpTake, laterVerb)}
	return s
}

func (s *laterStore) About() *weir.About { return &s.about }

func (s *laterStore) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *laterStore) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		switch op.Verb {
		case laterVerb:
			s.asked = append(s.asked, op.Request)
			op.Result.TotalRequests = 7
		case weir.OpTake:
			op.Result = weir.Result{State: weir.Allow, TotalRequests: 1}
		default:
			op.Err = op.Unsupported(&s.about)
		}
	}
}

// deaf is a wrapper that hands on the verbs of this release only: the control.
type deaf struct{ *laterStore }

func (d deaf) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if op.Verb > weir.OpWarm {
			op.Err = op.Unsupported(&d.about)
			continue
		}
		d.laterStore.Do(ctx, []*weir.Op{op})
	}
}

// asksLater reports whether a verb that a wrapper around s does not know comes to s, once, and what
// s answers comes back.
func asksLater(t *testing.T, s *laterStore, wrapper weir.Counter) bool {
	t.Helper()
	op := &weir.Op{Verb: laterVerb,
		Request: weir.Request{Key: "k", Limit: 5, Duration: time.Minute}}
	s.asked = nil
	op.Counter = wrapper
	wrapper.Do(t.Context(), []*weir.Op{op})
	return op.Err == nil && op.Result.TotalRequests == 7 && len(s.asked) == 1 &&
		op.Key == "k" && op.Verb == laterVerb
}

// A new verb is a case of the stores that can do it, and of nothing else: each wrapper hands on a
// verb that it does not know.
func TestAnUnknownVerbPassesEachWrapper(t *testing.T) {
	s := newLaterStore()
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	m, err := weir.NewLimit(s, 5, time.Minute)
	require.NoError(t, err)
	hybrid, err := fallback.New(s, l.FixedWindow(), fallback.Config{AllowUnlike: true})
	require.NoError(t, err)
	denials := near.NewDenials(s, near.DenialsConfig{})
	for name, wrapper := range map[string]weir.Strategy{
		"a limit":                m,
		"a named limit":          m.Named("n"),
		"a fallback":             hybrid,
		"near's denials":         denials,
		"near's leases":          near.NewLeases(s, near.LeaseConfig{}),
		"offenders":              offenders.New(offenders.Config{}).Watch(s),
		"a limit of all of them": mustLimit(t, near.NewLeases(near.NewDenials(hybrid, near.DenialsConfig{}), near.LeaseConfig{})),
	} {
		c := weir.CounterOf(wrapper)
		assert.True(t, asksLater(t, s, c), name)
		assert.True(t, c.About().Verbs.Has(laterVerb) || name == "a fallback" ||
			name == "a limit of all of them", name)
	}
	assert.True(t, asksLater(t, s, s))
	assert.False(t, asksLater(t, s, deaf{s}), "the control")
}

func mustLimit(t *testing.T, s weir.Strategy) *weir.Limit {
	t.Helper()
	m, err := weir.NewLimit(s, 5, time.Minute)
	require.NoError(t, err)
	return m
}

// What can be asked of a Strategy is data: no package looks whether one has other methods. The
// exceptions are interfaces of other projects' values.
func TestNoInterfaceIsLookedForInAStrategy(t *testing.T) {
	allowed := map[string]string{
		"cmd/weir/internal/serve/proxy/conns.go":          "a net.Conn",
		"httpclient/transport.go":                         "an http.RoundTripper",
		"httplimit/response_writer.go":                    "an http.ResponseWriter",
		"redislimit/reset_prefix.go":                      "a redis client",
		"cmd/weir/internal/serve/servercmd/configfile.go": "several errors as one",
	}
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "../.." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if a, ok := n.(*ast.TypeAssertExpr); ok {
				if _, anonymous := a.Type.(*ast.InterfaceType); anonymous {
					found[strings.TrimPrefix(filepath.ToSlash(path), "../../")] = true
				}
			}
			return true
		})
		return nil
	}))
	for path := range found {
		assert.Contains(t, allowed, path)
	}
	for path := range allowed {
		assert.True(t, found[path], path)
	}
}
