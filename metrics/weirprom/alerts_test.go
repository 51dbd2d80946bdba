package weirprom_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// TestAlerts has Prometheus's own tool check the alerting rules, and run their tests.
func TestAlerts(t *testing.T) {
	slow.Test(t)
	tool, err := exec.LookPath("promtool")
	require.NoError(t, err)
	out, err := exec.Command(tool, "check", "rules", "alerts.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "6 rules found")
	out, err = exec.Command(tool, "test", "rules", "alerts_test.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The negative control: each rule with another condition fails its tests.
func TestAlertsAreTested(t *testing.T) {
	slow.Test(t)
	tool, err := exec.LookPath("promtool")
	require.NoError(t, err)
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile("alerts_test.yaml")
	require.NoError(t, err)
	for from, to := range map[string]string{
		"> 0.8": "> 0.79", "== 0": "== 1", "for: 1m": "for: 3m", "> 0.01": "> 0.03",
		"> 0.02": "> 0.03", `{status=~"5xx|error"}`: `{status="5xx"}`, ")) > 2\n": ")) > 1\n",
		"> 0.05": "> 0.11", `{class!="sheddable"}`: "",
		"[5m])) > 0\n": "[5m])) >= 0\n",
	} {
		dir := t.TempDir()
		require.Equal(t, 1, bytes.Count(rules, []byte(from)), from)
		changed := bytes.Replace(rules, []byte(from), []byte(to), 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), changed, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts_test.yaml"), tests, 0o600))
		assert.Error(t, exec.Command(tool, "test", "rules", filepath.Join(dir, "alerts_test.yaml")).Run(),
			"%s became %s", from, to)
	}
}
