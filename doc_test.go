package weir_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// optional returns the names of the optional interfaces of s, in the order of the package's comment.
func optional(s weir.Strategy) (names []string) {
	for _, i := range []reflect.Type{
		reflect.TypeFor[weir.Peeker](), reflect.TypeFor[weir.Refunder](), reflect.TypeFor[weir.Resetter](),
		reflect.TypeFor[weir.PrefixResetter](), reflect.TypeFor[weir.Seeder](), reflect.TypeFor[weir.Charger](),
		reflect.TypeFor[weir.Reconciler](), reflect.TypeFor[weir.Admitter](), reflect.TypeFor[weir.Holder](),
		reflect.TypeFor[weir.Named](), reflect.TypeFor[weir.Forecaster](),
	} {
		if reflect.TypeOf(s).Implements(i) {
			names = append(names, i.Name())
		}
	}
	return names
}

// The table in the package's comment says what implements what.
func TestTheDocumentationSaysWhatImplementsWhat(t *testing.T) {
	limiter := limiterAt(noon())
	defer limiter.Close()
	tiers, err := limiter.Tiers(weir.Tier{Limit: 1, Duration: time.Second})
	require.NoError(t, err)
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(strings.TrimPrefix(line, "//\t")); strings.HasPrefix(line, "//\t") && len(words) > 1 {
			rows[words[0]] = words[1:]
		}
	}

	var forecasters, holders []string
	for _, s := range []weir.Strategy{
		limiter.FixedWindow(), limiter.Calendar(weir.Month, time.UTC), limiter.SlidingWindow(), limiter.SlidingLog(),
		limiter.TokenBucket(0), limiter.LeakyBucket(0), tiers, limiter.Counter(), limiter.List(),
		limiter.InFlight(),
	} {
		name, is := reflect.TypeOf(s).Elem().Name(), optional(s)
		if n := len(is) - 1; is[n] == "Forecaster" {
			forecasters, is = append(forecasters, name), is[:n]
		}
		if i := slices.Index(is, "Holder"); i >= 0 {
			holders, is = append(holders, name), slices.Delete(is, i, i+1)
		}
		assert.Equal(t, []string{"Peeker", "Refunder", "Resetter", "PrefixResetter", "Seeder", "Charger",
			"Admitter", "Named"}, is, name)
	}
	assert.Equal(t, rows["Forecaster"], forecasters)
	assert.Equal(t, rows["Holder"], holders)
	window := limiter.FixedWindow()
	assert.Equal(t, rows["All"], optional(weir.All(window, window)))
	policy, _, _ := strings.Cut(strings.Join(rows["Policy"], " "), ",")
	assert.Equal(t, strings.Fields(policy), slices.Clone(optional(weir.Policy{Strategy: window})))
}
