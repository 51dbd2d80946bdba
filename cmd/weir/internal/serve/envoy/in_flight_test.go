package envoy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The protocol does not report that a request ends: a rule for requests in flight is refused at the
// start, and when rules are loaded again.
func TestRulesInFlightAreRefused(t *testing.T) {
	const text = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: in_flight, " +
		"requests_per_unit: 4}}]\n"
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := New(Config{Paths: []string{file}})
	assert.EqualError(t, err,
		file+":2:15: k: the unit in_flight does not work for Envoy, whose protocol does not report "+
			"that a request ends; weir proxy and rules.Middleware hold to it: put the rule in a file for "+
			"them")

	r := start(t, yearly, nil)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "rules.yaml"), []byte(text), 0o600))
	assert.ErrorContains(t, r.live.Reload(), "the unit in_flight does not work for Envoy")
	r.ask(t, descriptor("one", "x"))
}
