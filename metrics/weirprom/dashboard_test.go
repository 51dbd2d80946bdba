package weirprom_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dashboard is as much of Grafana's model as the tests look at.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []struct {
		ID                       int
		Title, Type, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ RefID, Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

var metricName = regexp.MustCompile(`\bweir_[a-z_]+`)

// A dashboard that has a panel for a metric that is not exported shows "No data", which looks like
// health.
func TestDashboardAndAlertsUseMetricsThatExist(t *testing.T) {
	s := newService(t)
	s.ask("a")
	s.down = true
	s.ask("b")
	var families map[string]*dto.MetricFamily
	require.Eventually(t, func() bool { // OnCall runs after the caller has its answer
		families, _ = scrape(t, s.registry)
		return len(families["weir_primary_call_duration_seconds"].GetMetric()) == 2
	}, time.Minute, time.Millisecond)
	for _, name := range []string{"dashboard.json", "alerts.yaml", "alerts_test.yaml"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		names := metricName.FindAllString(string(text), -1)
		require.NotEmpty(t, names, name)
		for _, metric := range names {
			metric = strings.TrimSuffix(strings.TrimSuffix(metric, "_bucket"), "_count")
			if slices.Contains(ofTheProxy, metric) { // prometheus_test.go in cmd/weir has it scraped
				continue
			}
			assert.Contains(t, families, metric, name)
		}
	}
}

// ofTheProxy are the metrics that weir proxy alone exports.
var ofTheProxy = []string{"weir_upstream_duration_seconds", "weir_requests_in_flight"}

func TestDashboardIsWellFormed(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	assert.Equal(t, "weir", d.UID)
	assert.GreaterOrEqual(t, d.SchemaVersion, 36, "older ones name data groups in another way")
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "the panel %q has the ID of another", p.Title)
		ids[p.ID] = true
		assert.NotEmpty(t, p.Targets, p.Title)
		assert.NotEmpty(t, p.Description, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			require.Less(t, x, 24, "%q sticks out", p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.Empty(t, cells[[2]int{x, y}], "%q lies over another panel", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
	variables := regexp.MustCompile(`\$\{?(\w+)`)
	known := map[string]bool{"__rate_interval": true, "__all": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
	}
	for _, v := range variables.FindAllStringSubmatch(string(text), -1) {
		assert.True(t, known[v[1]], "the variable $%s is not defined", v[1])
	}
}
